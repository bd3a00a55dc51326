"""The examples of the documentation run, and the README's loop is the first of them."""

import importlib.util
import re

import pytest
import torch

from tests.helpers.examples import EXAMPLES, ROOT, TORCHRUN, run_example
from tests.helpers.small_resnet18 import small_resnet18


@pytest.fixture(scope="module")
def photos(tmp_path_factory, make_image):
    """A folder that holds ``photos``, 32 images of 48 px: one batch of the README's."""
    folder = tmp_path_factory.mktemp("loop")
    (folder / "photos").mkdir()
    for i in range(32):
        make_image(folder / "photos" / f"{i}.jpg", seed=i)
    return folder


def trained_trunk(folder):
    trunk = small_resnet18()
    trunk.fc = torch.nn.Identity()
    trunk.load_state_dict(torch.load(folder / "trunk.pth", weights_only=True))
    return trunk


def test_plain_pytorch__runs_and_its_loss_falls(photos):
    result = run_example(photos, "small_resnet18", EXAMPLES / "plain_pytorch.py")
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


@pytest.mark.parametrize("batch_size", ["8", "32"])  # of 16 images for each process
def test_ddp__runs_on_two_processes(photos, batch_size):
    example, options = EXAMPLES / "ddp.py", ["--epochs", "2", "--batch-size", batch_size]
    result = run_example(photos, "small_resnet18", example, "photos", *options, launcher=TORCHRUN)
    assert result.returncode == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["0", "1"]
    trained_trunk(photos)


@pytest.mark.skipif(not importlib.util.find_spec("lightning"), reason="lightning is not installed")
@pytest.mark.parametrize("batch_size", ["16", "64"])  # of 32 images
def test_lightning__runs(photos, batch_size):
    example, options = (
        EXAMPLES / "lightning_module.py",
        ["--epochs", "2", "--batch-size", batch_size],
    )
    result = run_example(photos, "small_resnet18", example, "photos", *options)
    assert result.returncode == 0, result.stderr
    assert "loss=" in result.stdout  # it trained
    trained_trunk(photos)
