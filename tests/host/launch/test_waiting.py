"""OpenMP's threads sleep while they wait, in runs on a CPU, and where the user has not chosen."""

import os
import subprocess
import sys

import pytest

CPU = "+config/pirl/machines=cpu"


def policy_after(call, **environment):
    """The policy, in a new process that has not loaded torch."""
    code = f"""
import os, sys
from pathlib import Path
from pirl_plugin.host.launch import train
from pirl_plugin.host.launch.waiting import wait_passively
assert "torch" not in sys.modules
{call}
print(os.environ.get("OMP_WAIT_POLICY"))
"""
    inherited = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.strip()


@pytest.mark.parametrize(
    ("gpu", "override", "expected"),
    [
        (None, "config=any", "PASSIVE"),
        ("nvidia0", "config=any", "None"),
        ("nvidia0", CPU, "PASSIVE"),
        ("nvidia0", "config.MACHINE.DEVICE=cpu", "PASSIVE"),
        ("nvidiactl", "config=any", "PASSIVE"),  # a driver without a device
    ],
)
def test_wait__is_passive_where_the_model_runs_on_a_cpu(tmp_path, gpu, override, expected):
    if gpu:
        (tmp_path / gpu).touch()
    call = f"wait_passively([{override!r}], Path({str(tmp_path)!r}))"
    assert policy_after(call) == expected


def test_wait__keeps_what_the_user_has_set():
    assert policy_after(f"wait_passively([{CPU!r}])", OMP_WAIT_POLICY="ACTIVE") == "ACTIVE"


def test_wait__changes_nothing_once_torch_is_loaded():
    assert policy_after(f"import torch; wait_passively([{CPU!r}])") == "None"


def test_train__waits_passively():
    call = f"try: train.main(['config=no/such', {CPU!r}])\nexcept BaseException: pass"
    assert policy_after(call) == "PASSIVE"
