"""OpenMP's threads sleep while they wait, in runs on a CPU, and where the user has not chosen."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pirl_plugin.vissl.launch.waiting import passive_ranks

CPU = "+config/pirl/machines=cpu"


def policy_after(call, **environment):
    """The policy, in a new process that has not loaded torch."""
    code = f"""
import os, sys
from pathlib import Path
from pirl_plugin.vissl.launch import train
from pirl_plugin.vissl.launch.waiting import wait_passively
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


OURS = "config=pretrain/pirl/quick_jigsaw"


@pytest.mark.parametrize(
    ("script", "overrides", "expected"),
    [
        ("run_distributed_engines.py", [OURS, CPU], "PASSIVE"),
        ("run_distributed_engines.py", ["config=pretrain/pirl/pirl_jigsaw_4node_resnet50"], "None"),
        ("run_distributed_engines.py", ["config=pretrain/simclr/none", CPU], "None"),
        ("other.py", [OURS, CPU], "None"),
    ],
)
def test_host_script__waits_passively_with_a_config_of_ours(tmp_path, script, overrides, expected):
    code = "import os, sys, vissl; print(os.environ.get('OMP_WAIT_POLICY'), 'torch' in sys.modules)"
    (tmp_path / script).write_text(code)
    result = subprocess.run(
        [sys.executable, tmp_path / script, *overrides],
        env={k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == [expected, "False"]


@pytest.mark.parametrize(
    ("device", "before", "meanwhile"),
    [("cpu", None, "PASSIVE"), ("gpu", None, None), ("cpu", "ACTIVE", "ACTIVE")],
)
def test_ranks__wait_passively_on_a_cpu(monkeypatch, device, before, meanwhile):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if before:
        monkeypatch.setenv("OMP_WAIT_POLICY", before)
    with passive_ranks(SimpleNamespace(MACHINE=SimpleNamespace(DEVICE=device))):
        assert os.environ.get("OMP_WAIT_POLICY") == meanwhile
    assert os.environ.get("OMP_WAIT_POLICY") == before
