"""VISSL's git main, in a checkout named by ``PIRL_VISSL_MAIN``.

PIRL_VISSL_MAIN=/path/to/vissl bash extra_scripts/run_tests.sh -m host_main
"""

import os
from pathlib import Path

import pytest

from tests.evaluation.test_benchmarks import voc  # noqa: F401, a fixture
from tests.helpers.host_runs import run, settings, state

MAIN = os.environ.get("PIRL_VISSL_MAIN", "")
ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.host_main,
    pytest.mark.skipif(not MAIN, reason="PIRL_VISSL_MAIN names no checkout of VISSL's git main"),
]


def run_main(folder, tool, *overrides):
    """Run a script from the checkout, which stays unchanged, in another folder."""
    variables = {"PYTHONPATH": f"{ROOT}:{MAIN}", "PYTHONDONTWRITEBYTECODE": "1"}
    return run(
        *overrides, command=[f"{MAIN}/tools/{tool}.py"], environment=variables, folder=folder
    )


def main_engine(*overrides):
    """Run the engine from the checkout."""
    return run_main(ROOT / "tests" / "helpers", "run_distributed_engines", *overrides)


@pytest.fixture(scope="module")
def checkpoint(image_folder, tmp_path_factory):
    """A two-process pre-training run whose bank starts with embeddings."""
    out = tmp_path_factory.mktemp("pretrained")
    run_main(out, "run_distributed_engines", *settings(image_folder, out, 1, processes=2))
    loss, _ = state(out)
    assert loss["bank.visited"].all()
    return out / "checkpoint.torch"


def benchmark(name, checkpoint, out, *overrides):
    return (
        f"config=benchmark/pirl/{name}", "+config/pirl/machines=cpu",
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={checkpoint}", f"config.CHECKPOINT.DIR={out}",
        "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=4", "config.DATA.NUM_DATALOADER_WORKERS=0",
        *overrides,
    )  # fmt: skip


def folders(image_folder, train="train"):
    return [
        f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / train}]",
        f"config.DATA.TEST.DATA_PATHS=[{image_folder / 'val'}]",
        "config.MODEL.HEAD.NUM_CLASSES=2",
        "config.OPTIMIZER.num_epochs=1",
    ]  # fmt: skip


def test_main__micro_batches(image_folder, tmp_path):
    more = ["config.TRAINER.PIRL_MICRO_BATCHES=2"]
    run_main(tmp_path, "run_distributed_engines", *settings(image_folder, tmp_path, 1), *more)
    assert (tmp_path / "checkpoint.torch").exists()


def test_main__linear(checkpoint, image_folder, tmp_path):
    given = benchmark("quick_linear", checkpoint, tmp_path, *folders(image_folder))
    run_main(tmp_path, "run_distributed_engines", *given)
    assert "test_accuracy" in (tmp_path / "metrics.json").read_text()


def test_main__semi_supervised(checkpoint, image_folder, tmp_path):
    names = sorted(path.relative_to(image_folder / "train") for path in
                   (image_folder / "train").rglob("*.jpg"))  # fmt: skip
    listed = tmp_path / "data" / "train"
    listed.parent.mkdir()
    listed.symlink_to(image_folder / "train")
    (tmp_path / "list.txt").write_text(
        "".join(f"{listed / name} {name.parent}\n" for name in names)
    )
    given = benchmark(
        "semi_supervised_imagenet1k_1percent", checkpoint, tmp_path / "out",
        *folders(image_folder), "+config/pirl/finetune=resnet10",
        f"config.DATA.TRAIN.DATA_PATHS=[{tmp_path / 'list.txt'}]",
        "config.DATA.TRAIN.CROP_SIZE=64", "config.DATA.TEST.RESIZE=73",
        "config.OPTIMIZER.num_epochs=4",  # more than its schedule has rates
    )  # fmt: skip
    run_main(tmp_path, "run_distributed_engines", *given)
    assert "test_accuracy" in (tmp_path / "out" / "metrics.json").read_text()


def test_main__svms(checkpoint, voc, tmp_path):  # noqa: F811
    given = benchmark(
        "svm_voc07", checkpoint, tmp_path, "+config/pirl/linear=resnet10",
        f"config.DATA.TRAIN.DATA_PATHS=[{voc}]", f"config.DATA.TEST.DATA_PATHS=[{voc}]",
        "config.MODEL.HEAD.NUM_CLASSES=3", "config.SVM.costs.costs_list=[1.0]",
        "config.SVM.max_iter=200", "config.DATA.TEST.BATCHSIZE_PER_REPLICA=8",
        "config.DATA.TRAIN.RESIZE=[64,64]",
    )  # fmt: skip
    run_main(tmp_path, "train_svm", *given)


def test_main__takes_a_run_from_the_release_and_back(image_folder, tmp_path):
    """Keys that only main has, at its defaults, are no difference."""
    for first, then in ((run, main_engine), (main_engine, run)):
        out = tmp_path / first.__name__
        given = settings(image_folder, out, 1)
        first(*given)
        again = then(*given)
        assert "this run is finished" in again.stdout + again.stderr
