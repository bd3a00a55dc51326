"""Every way to start a run trains the same PIRL, and a stopped run ends with the same result."""

import os
import signal
from pathlib import Path

import pytest
import torch

from pirl_plugin.method.settings import unpack_state
from pirl_plugin.system.files import UNFINISHED
from tests.helpers import faults
from tests.helpers.forks import train_in_forks
from tests.helpers.host_runs import host_script, losses, run, settings, state

FINAL = "model_final_checkpoint_phase1.torch"
PATHS = [str(Path(faults.__path__[0])), str(Path(__file__).parents[2])]
ALL = "config.CHECKPOINT.PIRL.KEEP_LAST=0"
OUR_COMMAND = ["-m", "pirl_plugin", "train"]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
# The rate changes once per epoch, so resuming in mid-epoch must restore it.
RATE = [
    "config.OPTIMIZER.param_schedulers.lr.start_value=0.02",
    "config.OPTIMIZER.param_schedulers.lr.end_value=0.001",
    "config.OPTIMIZER.param_schedulers.lr.update_interval=epoch",
]


def train(data, out, placement, *overrides, command=None, processes=2, fault=None, workers=0):
    """Train two epochs of three steps on two ranks, with the given fault.

    Without a command, VISSL's own, unmodified script starts the run.
    """
    return run(
        *overrides_of(data, out, placement, processes, workers),
        *overrides,
        command=command,
        environment={"PYTHONPATH": os.pathsep.join(PATHS), **(fault or {})},
        check=fault is None,
    )


def overrides_of(data, out, placement, processes, workers=0):
    return [
        *settings(data, out, epochs=2, processes=processes, workers=workers),
        *RATE,
        f"config.LOSS.pirl_loss.bank.placement={placement}",
    ]


@pytest.fixture(scope="module")
def whole(request, image_folder, tmp_path_factory):
    """An undisturbed run; torchrun starts the sharded one, which uses loader workers."""
    out = tmp_path_factory.mktemp(request.param)
    overrides = [ALL, "config.LOG_FREQUENCY=1"]
    if request.param == "replicated":
        words = [*overrides_of(image_folder, out, request.param, 1), *overrides]
        return request.param, out, train_in_forks(*words, ranks=2)
    command = [*TORCHRUN, host_script()]
    options = {"command": command, "processes": 1, "workers": 1}
    return request.param, out, train(image_folder, out, request.param, *overrides, **options)


def tensors(content, name=""):
    if isinstance(content, torch.Tensor):
        yield name, content
    elif isinstance(content, (dict, list)):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in items:
            yield from tensors(value, f"{name}.{key}")


def assert_same(out, whole):
    """Check that final checkpoints and bank shards are identical bit for bit."""
    files = [FINAL] + [str(p.relative_to(whole)) for p in whole.glob("memory_bank/step_6/*")]
    for file in files:
        found, expected = (torch.load(folder / file) for folder in (out, whole))
        for (name, tensor), (_, other) in zip(tensors(found), tensors(expected), strict=True):
            assert torch.equal(tensor.nan_to_num(), other.nan_to_num()), (file, name)
    counts = ("phase_idx", "train_phase_idx", "iteration", "iteration_num")
    found, expected = (torch.load(folder / FINAL) for folder in (out, whole))
    assert [found[key] for key in counts] == [expected[key] for key in counts]
    assert found["classy_state_dict"]["num_updates"] == expected["classy_state_dict"]["num_updates"]


@pytest.mark.parametrize("whole", ["replicated"], indirect=True)
def test_two_ranks__train_pirl(whole):
    _, out, result = whole
    assert all(0 < loss < 50 for loss in losses(out).values())
    loss, _ = state(out)
    assert loss["bank.rows"].shape == (20, 128)
    torch.testing.assert_close(loss["bank.rows"].norm(dim=1), torch.ones(20))
    steps = unpack_state(loss["_extra_state"])["step"]
    assert steps == 6  # 20 images / 2 processes / 4 = 3 steps per epoch
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr
    assert "Warning" not in result.stdout + result.stderr
    assert result.stdout.count("rows visited: 1\n") == 6


@pytest.mark.parametrize("whole", ["replicated"], indirect=True)
def test_resume__matches_undisturbed_run_bit_for_bit(whole, image_folder, tmp_path):
    """A signal to one rank in mid-epoch ends both ranks, and the run resumes."""
    overrides = [*overrides_of(image_folder, tmp_path, "replicated", 1), ALL]
    fault = {"FAULT_IN_STEP": "2:SIGUSR1:rank 0"}
    stopped = train_in_forks(*overrides, ranks=2, environment=fault)
    assert stopped.returncode == 128 + signal.SIGUSR1, stopped.stdout[-2000:] + stopped.stderr
    assert os.readlink(tmp_path / "checkpoint.torch").startswith("model_iteration")
    resumed = train_in_forks(*overrides, ranks=2)
    assert resumed.returncode == 0, resumed.stdout[-2000:] + resumed.stderr
    assert f"Resume from file: {tmp_path}/model_iteration" in resumed.stdout
    assert_same(tmp_path, whole[1])
    # As if killed after writing the final checkpoint.
    link = tmp_path / "checkpoint.torch"
    link.unlink()
    link.symlink_to("model_phase0.torch")
    assert train_in_forks(*overrides, ranks=2).returncode == 0
    assert os.readlink(link) == FINAL


@pytest.mark.slow
@pytest.mark.parametrize("whole", ["replicated", "sharded"], indirect=True)
def test_resume__of_spawned_ranks_matches_undisturbed_run(whole, image_folder, tmp_path):
    """Resume after a signal to the launcher in mid-epoch, and after a kill during a save.

    Our command starts the first part without the ``.pth`` file, so it must install the import hook
    itself, in spawned ranks too. The signal is SLURM's, which ends processes that do not handle it.
    """
    placement, whole, _ = whole
    a, b = tmp_path / "a", tmp_path / "b"
    fault = {"FAULT_IN_STEP": "2:SIGUSR1:launcher", "PIRL_PLUGIN_AUTOLOAD": "0"}
    stopped = train(image_folder, a, placement, ALL, command=OUR_COMMAND, fault=fault)
    status = 128 + signal.SIGUSR1
    assert stopped.returncode == status, stopped.stdout[-2000:] + stopped.stderr[-2000:]
    assert "stopped by SIGUSR1 after step" in stopped.stdout
    a.rename(b)
    assert os.readlink(b / "checkpoint.torch").startswith("model_iteration")
    # Rank 0's fourth torch.save writes its last shard; the first is VISSL's broadcast.
    fault = {"FAULT_IN_SAVE": "4"} if placement == "sharded" else None
    result = train(image_folder, b, placement, ALL, fault=fault)
    assert f"Resume from file: {b}/model_iteration" in result.stdout
    if placement == "sharded":
        assert result.returncode == 1, result.stdout[-2000:] + result.stderr[-2000:]
        assert list(b.rglob(f"{UNFINISHED}*"))
        assert not (b / FINAL).exists()
        result = train(image_folder, b, placement, ALL)
        assert f"Resume from file: {b}/model_phase0.torch" in result.stdout
        assert not list(b.rglob(f"{UNFINISHED}*"))
    assert_same(b, whole)
