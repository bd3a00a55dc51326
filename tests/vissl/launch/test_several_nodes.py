"""Two nodes with addresses of their own, one command on each as docs/guides/cluster.md says."""

import contextlib
import sys
import time

import pytest

from tests.helpers.host_runs import settings, state
from tests.helpers.launched import STEP, TRACEBACK, gone, started
from tests.helpers.networks import nodes, why_not

TIMEOUT_MINUTES = 0.3


@pytest.fixture
def pair():
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with nodes() as made:
        yield made


@contextlib.contextmanager
def on_both(pair, overrides, tmp_path, port):
    """The same command on both nodes."""
    run_id = f"config.DISTRIBUTED.RUN_ID={pair.addresses[0]}:{port}"
    common = [
        *overrides,
        "config.DISTRIBUTED.NUM_NODES=2",
        run_id,
        f"config.HOOKS.PIRL_RUN.timeout_minutes={TIMEOUT_MINUTES}",
    ]
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                started(
                    [*common, f"node_id={node}"],
                    tmp_path / f"node{node}",
                    [*pair.command(node), sys.executable, "-m", "pirl_plugin", "train"],
                )
            )
            for node in (0, 1)
        ]


@pytest.mark.slow
def test_nodes__end_when_their_link_is_cut_and_resume_when_it_is_back(pair, image_folder, tmp_path):
    out = tmp_path / "out"
    with on_both(pair, settings(image_folder, out, epochs=500), tmp_path, 29500) as runs:
        runs[0].wait_for(STEP)
        runs[0].wait_for("Saved checkpoint: ")
        assert (out / "run.lock").exists()
        pair.link("down")
        cut = time.monotonic()
        for run in runs:
            assert run.status(180) == 1
            assert len(run.sentences) == 1
            assert "config.HOOKS.PIRL_RUN.timeout_minutes = 0.3" in run.sentences[0]
            assert TRACEBACK not in run.out + run.err
            assert gone(run)
        assert time.monotonic() - cut < 60 * TIMEOUT_MINUTES + 60
    assert not (out / "run.lock").exists()
    pair.link("up")
    done = max(int(p.stem.removeprefix("model_phase")) for p in out.glob("model_phase*")) + 1
    again = settings(image_folder, out, epochs=done + 1)
    with on_both(pair, again, tmp_path, 29500) as runs:
        assert [run.status(240) for run in runs] == [0, 0], runs[0].err + runs[1].err
        assert "Loaded loss state from checkpoint" in runs[0].out
    # 20 images / 2 nodes / 4 = 3 steps an epoch
    assert state(out)[0]["_extra_state"]["step"] == 3 * (done + 1)


@pytest.mark.slow
def test_node__that_waits_for_the_first_in_vain_says_so(pair, image_folder, tmp_path):
    with on_both(pair, settings(image_folder, tmp_path / "o", epochs=1), tmp_path, 29500) as runs:
        runs[0].process.kill()
        assert runs[1].status(120) == 1
        assert "waited for it" in runs[1].sentences[0]
        assert TRACEBACK not in runs[1].out + runs[1].err
