"""Every command: no file of the current folder is code to it, and two Ctrl-C end it.

A new command fails these tests until ``arguments`` has what makes it read images.
"""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import packages_distributions

import pytest
import torch

from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.cli import COMMANDS
from pirl_plugin.models.resnet import ResNetTrunk
from tests.helpers.host_runs import settings
from tests.helpers.launched import TRACEBACK, gone, started

START = "from pirl_plugin.cli import main; main()"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    torch.manual_seed(0)
    file = tmp_path_factory.mktemp("weights") / "trunk.torch"
    save_trunk(ResNetTrunk(10, 0.5), file)
    return file


def arguments(command, checkpoint, data, out, ranks=2):
    """What makes a command read images, write to ``out``, and start all of its processes."""
    network = ["--checkpoint", str(checkpoint), "--data", str(data)]
    small = ["--size", "32", "--workers", "1"]
    labelled = [*network, "--size", "32", "--out", str(out)]
    trunk_file = ["--checkpoint", str(checkpoint), "--out", str(out / "trunk.pth")]
    one_epoch = ["config.OPTIMIZER.num_epochs=1", "config.DATA.NUM_DATALOADER_WORKERS=1"]
    words = {
        "train": settings(data, out, epochs=1, processes=ranks, workers=1),
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


# A script, as the console script is one: its folder, not the current one, is on the path.
RUN_ALL = """
import json, os, sys
from pirl_plugin.cli import main
if __name__ == "__main__":
    for words in json.load(sys.stdin):
        sys.argv[1:] = words
        try:
            main()
        except SystemExit as ended:
            if ended.code or os.path.exists("ran"):
                sys.exit(f"{words[0]}: {ended.code}")
"""
TRAINS_TWICE = ("quickstart", "finetune")


@pytest.mark.parametrize(
    "commands",
    [
        pytest.param([name for name in COMMANDS if name not in TRAINS_TWICE], id="others"),
        *(pytest.param([name], id=name, marks=pytest.mark.slow) for name in TRAINS_TWICE),
    ],
)
def test_current_folder__has_no_code_for_a_command(
    commands, checkpoint, planted, image_folder, tmp_path
):
    """In one process, because each would import torch; the processes that they start are more."""
    script = tmp_path / "bin" / "script.py"
    script.parent.mkdir()
    script.write_text(RUN_ALL)
    words = []
    for name in commands:
        out = tmp_path / f"out of {name}"
        out.mkdir()
        words.append(arguments(name, checkpoint, image_folder, out, ranks=1))
    done = subprocess.run(
        [sys.executable, script],
        input=json.dumps(words),
        cwd=planted,
        capture_output=True,
        text=True,
        check=False,
    )
    ran = planted / "ran"
    assert not ran.exists(), (done.stderr[-500:], ran.read_text())
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_interrupt__after_a_command_leaves_no_traceback():
    late = f"import atexit, signal; atexit.register(signal.raise_signal, signal.SIGINT); {START}"
    done = subprocess.run(
        [sys.executable, "-c", late, "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


# A read that no signal interrupts, like that of a lost network disk.
HANG = """
import os, sys, time
def hang(event, arguments):
    if event == "open" and str(arguments[0]).endswith({file!r}):
        open({mark!r}, "w").close()
        end = time.monotonic() + 600
        while time.monotonic() < end:
            try:
                time.sleep(600)
            except BaseException:
                pass
sys.addaudithook(hang)
"""


def hangs(file, folder):
    """Return the environment in which the read of a file does not return, and a file that says so.

    Args:
        file: the end of its path.
        folder: for files of the test.
    """
    mark = folder / "hangs"
    text = HANG.format(file=file, mark=str(mark))
    (folder / "sitecustomize.py").write_text(text)
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]), mark


def wait_until(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_two_interrupts__end_a_command_whose_read_hangs(
    command, checkpoint, image_folder, tmp_path
):
    files = {"export": checkpoint.name, "configs": "/quick_jigsaw.yaml"}
    path, mark = hangs(files.get(command, "/ants/3.jpg"), tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    words = arguments(command, checkpoint, image_folder, out)
    start = [sys.executable, "-m", "pirl_plugin"]
    with started(words, tmp_path / "console", command=start, PYTHONPATH=path) as run:
        wait_until(lambda: mark.exists() or run.process.poll() is not None)
        os.killpg(run.process.pid, signal.SIGINT)
        time.sleep(3)
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGINT)
        # On a busy machine, the second one may arrive while Python itself ends.
        assert run.status(60) in (128 + signal.SIGINT, -signal.SIGINT)
        assert run.err.splitlines()[-1].startswith("pirl_plugin: SIGINT"), run.err
        assert TRACEBACK not in run.out + run.err
        assert gone(run)


@pytest.mark.parametrize("workers", [0, 1])
def test_prepare__ends_if_a_read_hangs(workers, image_folder, tmp_path):
    """Other commands read images in the same way; a run's limit is in its configuration."""
    path, _ = hangs("/ants/3.jpg", tmp_path)
    limit = "from pirl_plugin.images import prepare; prepare.TIMEOUT_MINUTES = 0.03"
    words = ["prepare", image_folder / "train", tmp_path / "out", "--workers", workers]
    start = [sys.executable, "-c", f"{limit}; {START}"]
    with started(map(str, words), tmp_path / "console", command=start, PYTHONPATH=path) as run:
        assert run.status() == 1
        last = run.err.splitlines()[-1]
        assert last.startswith("pirl_plugin: no image was read for 0.03 minutes: reading ")
        assert f"{image_folder}/train/ants/3.jpg does not return" in last
        assert gone(run)
