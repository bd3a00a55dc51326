"""Every pre-training config trains, through the unmodified host's own script, on a CPU."""

import math

import pytest
import torch

from tests.helpers.host_runs import losses, run

# 8 images in batches of 4, twice: 4 steps. Views small, all else as in the configs.
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
QUICKEST = "npid_8node"


def train(name, data, out, *overrides):
    run(
        f"config=pretrain/pirl/{name}",
        "+config/pirl/machines=cpu",
        "+config/pirl/datasets=folder",
        f"config.DATA.TRAIN.DATA_PATHS=[{data}]",
        "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=4",
        *(f"config.DATA.TRAIN.VIEWS.{view}" for view in VIEWS[name]),
        "config.OPTIMIZER.num_epochs=2",
        "config.LOG_FREQUENCY=1",
        f"config.CHECKPOINT.DIR={out}",
        *overrides,
    )
    checkpoint = torch.load(out / "checkpoint.torch", weights_only=True)
    return losses(out), checkpoint


@pytest.mark.parametrize(
    "name", [QUICKEST, *(pytest.param(n, marks=pytest.mark.slow) for n in VIEWS if n != QUICKEST)]
)
def test_config__trains(name, image_folder, tmp_path):
    model = "resnet10" if name == QUICKEST else "resnet18"
    trained, checkpoint = train(
        name, image_folder / "val", tmp_path, f"+config/pirl/models={model}"
    )
    assert set(trained) == {0, 1, 2, 3}
    assert all(math.isfinite(loss) for loss in trained.values())
    if "baseline" not in name:
        assert checkpoint["loss"]["_extra_state"]["step"] == 4
        norms = checkpoint["loss"]["bank.rows"].norm(dim=1)
        torch.testing.assert_close(norms, torch.ones(8))
        return
    heads = checkpoint["classy_state_dict"]["base_model"]["model"]["heads"]
    outputs = [len(bias) for name, bias in heads.items() if name.endswith("clf.0.bias")]
    assert outputs[-1] == (10 if name == "jigsaw_baseline_8node" else 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["npid_8node", "jigsaw_8node"])
def test_lambda_of_zero__trains_in_two_processes(name, image_folder, tmp_path):
    """DistributedDataParallel waits for every parameter: a head without gradient would stop it."""
    two = ["config.DISTRIBUTED.NUM_PROC_PER_NODE=2", "config.LOSS.pirl_loss.lambda_invariance=0"]
    model = "+config/pirl/models=resnet10"
    trained, _ = train(name, image_folder / "train", tmp_path, model, *two)
    assert set(trained) == set(range(6))  # 20 images / 2 processes / 4, twice
    assert all(math.isfinite(loss) for loss in trained.values())
