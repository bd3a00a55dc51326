"""Signals at random moments to random processes of a run: it ends as if nothing had happened.

``PIRL_FAULTS=N PIRL_FAULTS_SEED=S`` set how many runs are disturbed, and how.
"""

import os
import random
import signal
import sys
import time

import pytest
import torch

from pirl_plugin.checkpoints.verify import verify
from tests.helpers.host_runs import settings
from tests.helpers.launched import children, gone, ranks_of, started

RUNS = int(os.environ.get("PIRL_FAULTS", "2"))
SEED = int(os.environ.get("PIRL_FAULTS_SEED", "0"))
EPOCHS = 24
FINAL = f"model_final_checkpoint_phase{EPOCHS - 1}.torch"
SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGUSR2, signal.SIGINT]
COMMAND = [sys.executable, "-m", "pirl_plugin", "train", "--max-restarts", "3"]

pytestmark = pytest.mark.slow


def overrides(data, out):
    """Two ranks with a worker each, 120 steps, saving in the middle of epochs too."""
    return [
        *settings(data, out, EPOCHS, processes=2, workers=1),
        "config.CHECKPOINT.CHECKPOINT_ITER_FREQUENCY=2",
    ]


@pytest.fixture(scope="module")
def whole(image_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    with started(overrides(image_folder, out / "run"), out, COMMAND) as run:
        assert run.status() == 0, run.err
    return verify(out / "run" / FINAL)


def victims(supervisor):
    """The launcher, its ranks, and their loader workers, of those that are there now."""
    launchers = children(supervisor)
    ranks = [rank for launcher in launchers for rank in ranks_of(launcher)]
    return {
        "launcher": launchers,
        "rank": ranks,
        "worker": [child for rank in ranks for child in children(rank)],
    }


@pytest.mark.parametrize("nth", range(RUNS))
def test_run__ends_as_if_nothing_had_happened(nth, whole, image_folder, tmp_path):
    draw = random.Random(f"{SEED} {nth}")
    out, story, status = tmp_path / "run", [], None
    for attempt in range(12):
        with started(overrides(image_folder, out), tmp_path / str(attempt), COMMAND) as run:
            if attempt < 3:  # disturbed twice each
                for _ in range(2):
                    story.append(_disturb(run, draw))
            status = run.status(400)
            assert "Traceback" not in run.err, (story, run.err)
        assert gone(run)
        if status == 0:
            break
    print(f"{nth}: {'; '.join(filter(None, story))}; {attempt + 1} commands")
    assert status == 0, story
    found = verify(out / FINAL)
    for part in ("loss", "classy_state_dict"):
        assert _same(found[part], whole[part]), (part, story)


def _disturb(run, draw):
    """Wait, pick a process that is there, send it a signal; says what, or None at the run's end."""
    end = time.monotonic() + draw.uniform(2, 25)
    while time.monotonic() < end:
        if run.process.poll() is not None:
            return None
        time.sleep(0.05)
    kind = draw.choice(["launcher", "rank", "rank", "worker"])
    alive = victims(run.process.pid)[kind]
    if not alive:
        return f"no {kind}"
    # A worker ends by SIGKILL alone; its rank gets the others.
    sent = signal.SIGKILL if kind == "worker" else draw.choice(SIGNALS)
    try:
        os.kill(draw.choice(alive), sent)
    except ProcessLookupError:
        return f"no {kind}"
    return f"{sent.name} to a {kind}"


def _same(found, expected):
    if isinstance(found, torch.Tensor):
        return torch.equal(found.nan_to_num(), expected.nan_to_num())
    if isinstance(found, dict):
        return found.keys() == expected.keys() and all(_same(found[k], expected[k]) for k in found)
    if isinstance(found, (list, tuple)):
        return len(found) == len(expected) and all(map(_same, found, expected))
    # Times and paths differ; numbers that steer training do not.
    return not isinstance(found, (int, bool)) or found == expected
