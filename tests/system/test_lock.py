"""Only one process at a time writes an output, whatever the command."""

import multiprocessing
import os
import subprocess
import sys

import pytest
import torch

from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.cli import run
from pirl_plugin.models.resnet import WideResNet
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import locked, locked_file
from tests.helpers.host_tools import write_classes

HELD = "another process is writing to it"


def test_folder__is_locked_until_last_process_ends(tmp_path):
    def second():
        with locked(tmp_path, "--out"):
            pass

    with locked(tmp_path, "--out") as lock:
        descriptor = os.dup(lock.fileno())  # as a rank inherits it
        with pytest.raises(Refused, match=f"--out = {tmp_path}: {HELD}"):
            second()
    # The launcher has ended, but a rank has not.
    with pytest.raises(Refused, match=HELD):
        second()
    os.close(descriptor)
    second()


def test_file_lock__leaves_no_file(tmp_path):
    file = tmp_path / "f.npz"
    with locked_file(file, "--out"), locked_file(tmp_path / "other.npz", "--out"):
        with pytest.raises(Refused, match=f"--out = {file}: {HELD}"), locked_file(file, "--out"):
            pass
        assert len(list(tmp_path.iterdir())) == 2
    assert not list(tmp_path.iterdir())
    with locked_file(file, "--out"):
        pass


TRY = """
import pathlib, sys, time
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import locked_file
file = pathlib.Path(sys.argv[1])
for _ in range(300):
    try:
        with locked_file(file, "--out"):
            handle = open(file, "x")  # fails if another process is in here
            time.sleep(0.0005)
            file.unlink()
    except Refused:
        pass
"""


def test_file__is_never_locked_twice(tmp_path):
    """The lock file is removed and recreated while other processes open it."""
    command = [sys.executable, "-c", TRY, str(tmp_path / "out")]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(4)]
    for process in processes:
        _, error = process.communicate()
        assert process.returncode == 0, error


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Create a checkpoint and labeled images."""
    folder = tmp_path_factory.mktemp("inputs")
    torch.manual_seed(0)
    save_trunk(WideResNet(10, 0.25), folder / "trunk.torch")
    write_classes(folder / "data", {"train": 6, "val": 4}, separable=True)
    return folder


MEASURE = ["--checkpoint", "IN/trunk.torch", "--data", "IN/data"]
WRITING = {  # option -> command, and the output that the option names
    "knn out": (["knn", *MEASURE, "--out", "OUT"], "OUT"),
    "knn report": (["knn", *MEASURE, "--report", "OUT/a.html"], "OUT/a.html"),
    "embed": (
        ["embed", *MEASURE[:2], "--data", "IN/data/train", "--out", "OUT/a.csv"],
        "OUT/a.csv",
    ),
    "export": (
        ["export", *MEASURE[:2], "--to", "torchvision", "--out", "OUT/a.pth"],
        "OUT/a.pth",
    ),
    "prepare": (["prepare", "IN/data/train", "OUT/copy", "--workers", "0"], "OUT/copy"),
    "quickstart": (["quickstart", "--data", "IN/data", "--out", "OUT/quick"], "OUT/quick"),
}


@pytest.mark.parametrize("name", WRITING)
def test_command__is_refused_while_output_is_locked(name, inputs, tmp_path):
    words, output = WRITING[name]
    places = {"IN/": f"{inputs}/", "OUT": str(tmp_path)}
    for place, path in places.items():
        words = [word.replace(place, path) for word in words]
        output = output.replace(place, path)
    is_folder = name in ("knn out", "prepare", "quickstart")
    code = (
        f"import pathlib, time\nfrom pirl_plugin.system import files\n"
        f"path = pathlib.Path({output!r})\n"
        f"with files.{'locked(path, chr(45))' if is_folder else 'locked_file(path, chr(45))'}:\n"
        f"    print(flush=True)\n    time.sleep(600)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        other.stdout.readline()
        with pytest.raises(Refused, match=HELD):
            run(words)
    finally:
        other.kill()
        other.wait()
    if name != "quickstart":  # takes minutes
        run(words)
        assert not any(tmp_path.glob(".*.lock"))


def outcome(words):
    """Return the command's exit status or refusal."""
    try:
        return run(words)
    except Refused as error:
        return str(error)


def test_concurrent_prepare__makes_one_correct_copy(inputs, tmp_path):
    command = ["prepare", str(inputs / "data"), str(tmp_path / "copy"), "--workers", "0"]
    with multiprocessing.get_context("fork").Pool(2) as pool:  # torch is imported already
        outcomes = pool.map(outcome, [command, command], chunksize=1)
    assert 0 in outcomes
    assert all(end == 0 or HELD in end for end in outcomes)
    for file in (inputs / "data").rglob("*.png"):
        copy = tmp_path / "copy" / file.relative_to(inputs / "data")
        assert copy.read_bytes() == file.read_bytes()
