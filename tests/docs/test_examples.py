"""The examples of the documentation run, and the README's loop is the first of them."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.helpers.small_resnet18 import small_resnet18

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture(scope="module")
def photos(tmp_path_factory, make_image):
    """A folder that holds ``photos``, 32 images of 48 px: one batch of the README's."""
    folder = tmp_path_factory.mktemp("loop")
    (folder / "photos").mkdir()
    for i in range(32):
        make_image(folder / "photos" / f"{i}.jpg", seed=i)
    return folder


def run(folder, *example, launcher=()):
    """Run an example as its docstring says, with a small network in the place of resnet18."""
    return subprocess.run(
        [sys.executable, "-m", *launcher, "tests.helpers.small_resnet18", *example],
        cwd=folder,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )


def trained_trunk(folder):
    trunk = small_resnet18()
    trunk.fc = torch.nn.Identity()
    trunk.load_state_dict(torch.load(folder / "trunk.pth", weights_only=True))
    return trunk


def test_plain_pytorch__runs_and_its_loss_falls(photos):
    result = run(photos, EXAMPLES / "plain_pytorch.py")
    assert result.returncode == 0, result.stderr
    losses = [float(line.split()[1]) for line in result.stdout.splitlines()]
    assert len(losses) == 10
    assert losses[-1] < losses[0]
    trained_trunk(photos)


def test_plain_pytorch__is_the_readmes_loop():
    program = (EXAMPLES / "plain_pytorch.py").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert program.split('"""\n\n', 1)[1] == block
    assert len(program.splitlines()) <= 60


def test_ddp__runs_on_two_processes(photos):
    example, options = EXAMPLES / "ddp.py", ["--epochs", "2", "--batch-size", "8"]
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--module"]
    result = run(photos, example, "photos", *options, launcher=torchrun)
    assert result.returncode == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["0", "1"]
    trained_trunk(photos)


@pytest.mark.skipif(not importlib.util.find_spec("lightning"), reason="lightning is not installed")
def test_lightning__runs(photos):
    example, options = EXAMPLES / "lightning_module.py", ["--epochs", "2", "--batch-size", "16"]
    result = run(photos, example, "photos", *options)
    assert result.returncode == 0, result.stderr
    trained_trunk(photos)
