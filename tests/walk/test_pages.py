"""Each shell block in README and guides runs to the end on tiny data."""

import json
import math
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import yaml
from PIL import Image

from pirl_plugin.evaluation.finished_runs import final_accuracy, final_checkpoint
from tests.helpers.hub import OFFLINE, cache_weights
from tests.walk import pages, tiny
from tests.walk.shell import knn_top1, linear_top1, run
from tests.walk.small import smaller_run

pytestmark = pytest.mark.walk
BLOCKS = pages.blocks()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A ResNet-50 after one epoch of the paper's run, on tiny data."""
    folder = tmp_path_factory.mktemp("paper")
    tiny.folder(folder / "IMAGENET")
    words = ["config=pretrain/pirl/jigsaw_8node", "config.DATA.TRAIN.DATA_PATHS=[IMAGENET/train]"]
    words = smaller_run([*words, "config.CHECKPOINT.DIR=OUT"], words[0])
    run(f"pirl-plugin train {' '.join(words)}", folder)
    return (folder / "OUT/checkpoint.torch").resolve()


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory, checkpoint):
    """The working directory for a page; blocks find the output of earlier blocks."""
    folders = {}

    def find(page):
        if page not in folders:
            folders[page] = pages.furnish(tmp_path_factory.mktemp(page), page, checkpoint)
        return folders[page]

    return find


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A cache with weights for the network in the guides, as if they were downloaded."""
    folder = tmp_path_factory.mktemp("hub")
    cache_weights(folder, "tf_efficientnet_lite0")
    return folder


@pytest.mark.parametrize(("page", "number", "text"), BLOCKS, ids=[f"{p}-{n}" for p, n, _ in BLOCKS])
def test_block__runs_to_the_end(page, number, text, folder_of, hub):
    folder = folder_of(page)
    pages.prepare(text, folder)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("train_config.yaml")}
    variables = {"FIRST_HOST": "localhost", "HF_HOME": str(hub), **OFFLINE}
    start = partial(run, text, folder, small=True, **variables)
    with ThreadPoolExecutor() as pool:
        nodes = [pool.submit(start) for _ in range(pages.nodes_of(text))]
        output = "".join(node.result() for node in nodes)
    for config in folder.rglob("train_config.yaml"):
        if before.get(config) != config.stat().st_mtime_ns:
            check_run(config.parent)
    if "pirl-plugin knn" in text:
        assert knn_top1(output) == 100
    if "pirl-plugin linear" in text:
        assert linear_top1(output) >= 90
    for results in re.findall(r"paper/results\.py .*--out ([\w/]+)", text):
        tables = json.loads((folder / results / "results.json").read_text())["tables"]
        assert any(value for t in tables for row in t["rows"] for value in row["measured"])
        for figure in ("figure_2.png", "figure_5.png"):
            assert Image.open(folder / results / figure).size[0] > 1000


def check_run(folder):
    """Check that VISSL's output is complete and its figures are plausible."""
    config = yaml.safe_load((folder / "train_config.yaml").read_text())
    if config["MODEL"]["FEATURE_EVAL_SETTINGS"]["EXTRACT_TRUNK_FEATURES_ONLY"]:
        for layer in ("conv1", "res2", "res3", "res4", "res5"):
            precision = np.load(folder / layer / "test_ap.npy")
            assert precision.shape[0] == 3
            assert (precision >= 0).all()
            assert (precision <= 1).all()
        return
    assert final_checkpoint(folder)
    losses = [json.loads(line)["loss"] for line in (folder / "stdout.json").open()]
    assert losses
    assert all(map(math.isfinite, losses))
    if config["TEST_MODEL"]:
        assert all(0 <= top1 <= 100 for top1 in final_accuracy(folder).values())


def test_blocks__most_run():
    assert len(BLOCKS) > 25
