"""VISSL's engine on one GPU for two epochs: trains, is killed, and goes on to the same result."""

import os
import shutil
import signal
import sys

import pytest
import torch

pytest.importorskip("vissl", reason="needs VISSL")

from tests.helpers.host_runs import losses, run, settings, state
from tests.helpers.launched import started

# Not the host's script: where the plugin is not installed, nothing would tell it of the plugin.
COMMAND = [sys.executable, "-m", "pirl_plugin", "train"]
ON = {
    "cuda": [
        "config.MACHINE.DEVICE=gpu",
        "config.DISTRIBUTED.BACKEND=nccl",
        "config.LOSS.pirl_loss.scores=triton",
        "config.REPRODUCIBILITY.CUDDN_DETERMINISTIC=true",
    ],
    "cpu": [],
}


@pytest.fixture
def device(slow_device):
    return slow_device


def overrides(data, out, device, epochs=2, workers=2):
    return [*settings(data, out, epochs=epochs, workers=workers), *ON[device]]


@pytest.mark.parametrize("placement", ["replicated", "sharded"])
def test_host__is_killed_and_goes_on_to_the_same_result(device, placement, image_folder, tmp_path):
    more = [f"config.LOSS.pirl_loss.bank.placement={placement}"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(*overrides(image_folder, whole, device), *more, command=COMMAND)
    assert all(0 < loss < 100 for loss in losses(whole).values())
    console = {"PIRL_PLUGIN_CONSOLE": "log"}
    longer = overrides(image_folder, cut, device, epochs=50)
    with started([*longer, *more], tmp_path / "console", COMMAND, **console) as first:
        first.wait_for("Saved checkpoint", count=1)
        os.killpg(first.process.pid, signal.SIGKILL)
    for file in cut.glob("model_phase[1-9]*"):  # of later epochs, if it was quick
        file.unlink()
    for folder in (cut / "memory_bank").glob("step_*"):
        if int(folder.name[5:]) > 5:
            shutil.rmtree(folder)
    run(*overrides(image_folder, cut, device), *more, command=COMMAND)
    (loss, trunk), (expected, expected_trunk) = state(cut), state(whole)
    assert loss["_extra_state"]["step"] == expected["_extra_state"]["step"] == 10
    torch.testing.assert_close(
        loss["norm_constant"], expected["norm_constant"], rtol=1e-4, atol=0, equal_nan=True
    )
    if placement == "replicated":
        rows, others = loss["bank.rows"].cpu(), expected["bank.rows"].cpu()
        torch.testing.assert_close(rows, others, rtol=0, atol=1e-3)
    for name, tensor in trunk.items():
        torch.testing.assert_close(tensor, expected_trunk[name], rtol=1e-2, atol=1e-3, msg=name)


@pytest.mark.parametrize(
    "amp", ["config.HOOKS.PIRL_INPUT.autocast=bfloat16", "config.MODEL.AMP_PARAMS.USE_AMP=true"]
)
def test_host__trains_in_half_precision(device, amp, image_folder, tmp_path):
    """bfloat16 of the input hook, and the host's own float16 with its GradScaler."""
    if device == "cpu" and "AMP_PARAMS" in amp:
        pytest.skip("the host's float16 needs a GPU")
    pytorch = ["config.MODEL.AMP_PARAMS.AMP_TYPE=pytorch"] if "AMP_PARAMS" in amp else []
    arguments = overrides(image_folder, tmp_path, device, epochs=1, workers=0)
    # The config's own views: one-pixel maps of the settings' small ones have no variance.
    arguments = [each for each in arguments if "TRANSFORMS" not in each]
    run(*arguments, amp, *pytorch, command=COMMAND)
    assert all(0 < loss < 100 for loss in losses(tmp_path).values())
    loss, _ = state(tmp_path)
    rows = loss["bank.rows"].cpu()
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(len(rows)))
