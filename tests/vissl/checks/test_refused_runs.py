"""Mistakes as a user makes them, through the host's own script and our command."""

import sys

import pytest

from tests.helpers.host_runs import run

QUICK = "config=pretrain/pirl/quick_jigsaw"
OURS = [sys.executable, "-m", "pirl_plugin", "train"]


@pytest.mark.parametrize(
    ("command", "override", "message"),
    [
        (None, "config.LOSS.pirl_loss.temperature=-1", "temperature = -1: expected"),
        (OURS, "config.OPTIMIZER.num_epoch=3", "the nearest are config.OPTIMIZER.num_epochs"),
    ],
)
def test_mistake__is_one_sentence_and_nothing_is_written(command, override, message, tmp_path):
    out = tmp_path / "out"
    result = run(QUICK, f"config.CHECKPOINT.DIR={out}", override, command=command, check=False)
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert len([line for line in result.stderr.splitlines() if "pirl_plugin:" in line]) == 1
    assert not out.exists()
