"""Every command: no file of the current folder is code to it.

A new command fails these tests until ``arguments`` has what makes it read images.
"""

import subprocess
import sys
from importlib.metadata import packages_distributions

import pytest
import torch

from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.cli import COMMANDS
from pirl_plugin.models.resnet import ResNetTrunk
from tests.helpers.host_runs import settings

START = "from pirl_plugin.cli import main\nif __name__ == '__main__':\n    main()\n"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    torch.manual_seed(0)
    file = tmp_path_factory.mktemp("weights") / "trunk.torch"
    save_trunk(ResNetTrunk(10, 0.5), file)
    return file


def arguments(command, checkpoint, data, out):
    """What makes a command read images, write to ``out``, and start all of its processes."""
    network = ["--checkpoint", str(checkpoint), "--data", str(data)]
    small = ["--size", "32", "--workers", "1"]
    labelled = [*network, "--size", "32", "--out", str(out)]
    trunk_file = ["--checkpoint", str(checkpoint), "--out", str(out / "trunk.pth")]
    one_epoch = ["config.OPTIMIZER.num_epochs=1", "config.DATA.NUM_DATALOADER_WORKERS=1"]
    words = {
        "train": settings(data, out, epochs=1, processes=2, workers=1),
        "quickstart": ["--data", str(data), "--out", str(out), "--epochs", "1"],
        "knn": [*network, *small],
        "embed": [*network, *small, "--out", str(out / "features.npz")],
        "linear": [*labelled, *one_epoch],
        "finetune": [*labelled, "--scratch", *one_epoch],
        "export": [*trunk_file, "--to", "torchvision"],
        "prepare": [str(data), str(out), "--workers", "1"],
        "configs": ["pretrain/pirl/quick_jigsaw"],
    }
    return [command, *words[command]]


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A folder with modules of all names that can be imported; each leaves its name in a file."""
    folder = tmp_path_factory.mktemp("planted")
    names = sys.stdlib_module_names | packages_distributions().keys()
    for name in filter(str.isidentifier, names):
        text = f"open({str(folder / 'ran')!r}, 'a').write(__name__ + ' ')\nraise ImportError\n"
        (folder / f"{name}.py").write_text(text)
    return folder


def each_command():
    """All commands; those that train twice or more are slow."""
    for name in COMMANDS:
        marks = [pytest.mark.slow] if name in ("quickstart", "finetune") else []
        yield pytest.param(name, marks=marks)


@pytest.mark.parametrize("command", each_command())
def test_current_folder__has_no_code_for_a_command(
    command, checkpoint, planted, image_folder, tmp_path
):
    script = tmp_path / "bin" / "script.py"
    script.parent.mkdir()
    script.write_text(START)
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        [sys.executable, script, *arguments(command, checkpoint, image_folder, tmp_path / "out")],
        cwd=planted,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert not (planted / "ran").exists(), (planted / "ran").read_text()
