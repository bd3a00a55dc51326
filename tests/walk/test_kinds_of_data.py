"""For each data format: one epoch of pre-training, then every command that the run prints."""

import json
import math
import re

import pytest
import torch

from tests.walk import tiny
from tests.walk.shell import knn_top1, next_commands, run

pytestmark = pytest.mark.walk
SMALL = "config.OPTIMIZER.num_epochs=1 config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=8"
NETWORKS = {
    "quick_jigsaw": "config=pretrain/pirl/quick_jigsaw config.LOSS.pirl_loss.num_negatives=16",
    "own_images": "config=pretrain/pirl/own_images +config/pirl/machines=cpu "
    "+config/pirl/models=resnet18 config.DATA.TRAIN.VIEWS.image_size=64 "
    "config.DATA.TRAIN.VIEWS.patches_crop_size=96 config.DATA.TRAIN.VIEWS.patch_size=24",
}


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_printed_commands__run(kind, tmp_path):
    make, overlay, train = tiny.KINDS[kind]
    make(tmp_path / "DATA")
    data = f"+config/pirl/datasets={overlay}"
    if train:
        data += f" config.DATA.TRAIN.DATA_PATHS=[{train}]"
    config = NETWORKS["own_images" if kind == "folder" else "quick_jigsaw"]
    output = run(
        f"pirl-plugin train {config} {SMALL} {data} config.CHECKPOINT.DIR=OUT",
        tmp_path,
        VISSL_DATASET_CATALOG_PATH=str(tmp_path / "DATA/catalog.json"),
    )
    losses = [json.loads(line)["loss"] for line in (tmp_path / "OUT/stdout.json").open()]
    assert f"training  {2 * tiny.IMAGES['train']} images, 1 epoch, 4 steps" in output
    assert all(math.isfinite(loss) and loss > 0 for loss in losses)

    images = {
        "catalog": "--data DATA/imagenet1k",
        "text": "--train DATA/train.txt --val DATA/val.txt",
        "CSV": "--train DATA/train.csv --val DATA/val.csv",
    }
    knn, linear, export = (
        command.replace("--data DIR", images.get(kind, "--data DATA"))
        for command in next_commands(output)
    )
    assert knn_top1(run(knn, tmp_path)) == 100
    chosen = re.search(r"([\d.]+) +\S+  chosen$", run(linear, tmp_path), re.M)
    assert float(chosen[1]) == 100
    run(export, tmp_path)
    trunk = torch.load(tmp_path / "OUT/trunk.pth", weights_only=True)
    state = torch.load(tmp_path / "OUT/checkpoint.torch", weights_only=True)
    trained = state["classy_state_dict"]["base_model"]["model"]["trunk"]
    name = "layer4.0.conv1.weight"
    assert torch.equal(trunk[name], trained[f"_feature_blocks.{name}"])
