"""Every pre-training config trains on a CPU through VISSL's own, unmodified script."""

import math

import pytest
import torch

from pirl_plugin.method.settings import unpack_state
from tests.helpers.host_runs import losses, run

# 8 images in batches of 4, twice: 4 steps. Views are small; all else is as in the configs.
IMAGE, PATCHES = ["image_size=32"], ["patches_crop_size=36", "patch_size=12"]
VIEWS = {
    "npid_8node": IMAGE,
    "npidpp_8node": IMAGE,
    "jigsaw_8node": IMAGE + PATCHES,
    "rotation_8node": IMAGE,
    "rotation_jigsaw_8node": IMAGE + PATCHES,
    "jigsaw_baseline_8node": [*PATCHES, "num_permutations=10"],
    "rotation_baseline_8node": IMAGE,
}


def overrides_of(name, data, out):
    """Return overrides that run a config on 8 images in batches of 4, twice."""
    return [
        f"config=pretrain/pirl/{name}",
        "+config/pirl/machines=cpu",
        "+config/pirl/datasets=folder",
        f"config.DATA.TRAIN.DATA_PATHS=[{data}]",
        "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=4",
        *(f"config.DATA.TRAIN.VIEWS.{view}" for view in VIEWS[name]),
        "config.OPTIMIZER.num_epochs=2",
        "config.LOG_FREQUENCY=1",
        f"config.CHECKPOINT.DIR={out}",
    ]


def check_trained(name, out):
    """Check that a run with :func:`overrides_of` has finite losses, and a bank or classifier."""
    trained = losses(out)
    assert set(trained) == {0, 1, 2, 3}
    assert all(math.isfinite(loss) for loss in trained.values())
    checkpoint = torch.load(out / "checkpoint.torch", weights_only=True)
    if "baseline" not in name:
        assert unpack_state(checkpoint["loss"]["_extra_state"])["step"] == 4
        norms = checkpoint["loss"]["bank.rows"].norm(dim=1)
        torch.testing.assert_close(norms, torch.ones(8))
        return
    heads = checkpoint["classy_state_dict"]["base_model"]["model"]["heads"]
    outputs = [len(bias) for name, bias in heads.items() if name.endswith("clf.0.bias")]
    assert outputs[-1] == (10 if name == "jigsaw_baseline_8node" else 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", VIEWS)
def test_config__trains(name, image_folder, tmp_path):
    """In the ordinary tests, the test of VISSL's task also trains NPID."""
    run(*overrides_of(name, image_folder / "val", tmp_path), "+config/pirl/models=resnet18")
    check_trained(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["npid_8node", "jigsaw_8node"])
def test_zero_lambda__trains_in_two_processes(name, image_folder, tmp_path):
    """DistributedDataParallel waits for every parameter, so a head without gradient would hang."""
    two = ["config.DISTRIBUTED.NUM_PROC_PER_NODE=2", "config.LOSS.pirl_loss.lambda_invariance=0"]
    model = "+config/pirl/models=resnet10"
    run(*overrides_of(name, image_folder / "train", tmp_path), model, *two)
    trained = losses(tmp_path)
    assert set(trained) == set(range(6))  # 20 images / 2 processes / 4, twice
    assert all(math.isfinite(loss) for loss in trained.values())
