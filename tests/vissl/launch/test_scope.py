"""VISSL's own approaches run as they do without this plugin."""

import re

import pytest

from tests.helpers.host_runs import run

SIMCLR = [
    "config=test/integration_test/quick_simclr_synthetic",
    "config.MACHINE.DEVICE=cpu",
    "config.DISTRIBUTED.NUM_PROC_PER_NODE=1",
    "config.DATA.NUM_DATALOADER_WORKERS=0",
    "config.DATA.TRAIN.DATA_LIMIT=8",
    "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=4",
    "config.OPTIMIZER.num_epochs=1",
    "config.OPTIMIZER.use_larc=false",
    "config.MODEL.SYNC_BN_CONFIG.CONVERT_BN_TO_SYNC_BN=false",
    "config.HOOKS.TENSORBOARD_SETUP.USE_TENSORBOARD=false",
    "config.DISTRIBUTED.BACKEND=gloo",
    "config.LOG_FREQUENCY=1",
]
# What the host needs on this Python, without anything of the plugin.
SITE = """
import sys, types
from importlib.util import find_spec
from pathlib import Path
from torchvision.datasets import kinetics
kinetics.Kinetics400 = getattr(kinetics, "Kinetics400", None) or kinetics.Kinetics
sys.modules["pkg_resources"] = types.SimpleNamespace(
    resource_filename=lambda package, file: str(Path(find_spec(package).origin).parent / file)
)
"""


def shape(log):
    """The log's lines without times, places in files, numbers and the logged environment."""
    lines = [line for line in log.splitlines() if " env.py:" not in line]
    lines = [re.sub(r"^(INFO|WARNING|ERROR) [\d-]+ [\d:,]+ ", r"\1 ", line) for line in lines]
    lines = [re.sub(r"0x[0-9a-f]+|[\d.]+(e-?\d+)?", "#", line) for line in lines]
    return [" ".join(line.split()) for line in lines]  # columns follow the numbers' widths


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_vissl__runs_as_without_the_plugin(fails, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    rate = ["config.OPTIMIZER.momentum=oops"] if fails else []
    seen = {}
    for name, environment in (
        ("with", {}),
        ("without", {"PIRL_PLUGIN_AUTOLOAD": "0", "PYTHONPATH": str(tmp_path / "site")}),
    ):
        out = tmp_path / name / "out"
        result = run(
            *SIMCLR, *rate, f"config.CHECKPOINT.DIR={out}", check=False, environment=environment
        )
        files = sorted(path.name for path in out.iterdir()) if out.exists() else []
        log = (out / "log.txt").read_text() if (out / "log.txt").exists() else ""
        seen[name] = (result.returncode, files, log, result)
    assert seen["with"][3].stdout.count("pirl_plugin ") == 1, seen["with"][3].stdout[-2000:]
    assert "pirl_plugin" not in seen["without"][2]
    assert seen["with"][:2] == seen["without"][:2]
    assert shape(seen["with"][2]) == shape(seen["without"][2].replace("/without/", "/with/"))
