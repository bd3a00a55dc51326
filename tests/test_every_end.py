"""How every command ends: on a full disk, a killed loader process, one Ctrl-C and two.

It must end soon, with one sentence, and leave no process, no lock and no temporary file.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

from pirl_plugin.cli import COMMANDS
from tests.helpers.commands import arguments, write_checkpoint
from tests.helpers.launched import TRACEBACK, gone, started

START = "from pirl_plugin.cli import main; main()"
READING = ("train", "quickstart", "knn", "embed", "linear", "finetune", "prepare")
SECONDS = 30  # from the fault to the end, not counting waits for a core

# Put on PYTHONPATH as sitecustomize. ACT runs when the given file is opened.
AT_A_READ = """
import multiprocessing, os, signal, sys, time
def hang():
    while True:  # like a read from a lost network disk, which no signal interrupts
        try:
            time.sleep(600)
        except BaseException:
            pass
def kill():
    if multiprocessing.current_process().daemon:  # a loader process
        os.kill(os.getpid(), signal.SIGKILL)
def at_open(event, arguments):
    if event == "open" and str(arguments[0]).endswith({file!r}):
        open({mark!r}, "w").close()
        {act}
sys.addaudithook(at_open)
"""
LIMIT = """
from pirl_plugin.system.waits import Waits
Waits.minutes = property(lambda waits: 0.05, lambda waits, minutes: None)
"""
# Fails to create any file in a folder from the N-th new one on.
FULL_DISK = """
import errno, os, sys
left = [{number}]
def at_open(event, arguments):
    if event == "open" and arguments[2] & os.O_CREAT:
        if {folder!r} in os.path.abspath(str(arguments[0])):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), arguments[0])
sys.addaudithook(at_open)
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("weights"))


@pytest.fixture
def folders(tmp_path_factory):
    """Folders for a command: output, temporary files, and a module ``sitecustomize``.

    Their names are short: multiprocessing puts sockets below TMPDIR, whose paths may have at most
    107 bytes.
    """
    parent = tmp_path_factory.mktemp("end")
    names = ("out", "temporary", "site")
    for name in names:
        (parent / name).mkdir()
    return [parent / name for name in names]


def start(words, folders, fault, **options):
    """Start a command with a ``sitecustomize`` module that makes it fail."""
    _, temporary, site = folders
    (site / "sitecustomize.py").write_text(fault)
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    command = options.pop("command", [sys.executable, "-m", "pirl_plugin"])
    environment = {"PYTHONPATH": path, "TMPDIR": str(temporary)}
    return started(words, site / "console", command=command, **environment, **options)


def at_a_read(act, mark, file="/ants/3.jpg"):
    return AT_A_READ.format(file=file, mark=str(mark), act=act)


def wait_until(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def check_end(run, folders, statuses, begin="", seconds=SECONDS):
    """Check that a command ends with one sentence and leaves only its output."""
    out, temporary, _ = folders
    assert run.status_soon(seconds) in statuses, run.err
    assert TRACEBACK not in run.out + run.err
    assert len(run.sentences) == 1, run.err
    assert run.err.splitlines()[-1].startswith(f"pirl_plugin: {begin}"), run.err
    assert gone(run)
    left = [*out.parent.glob(".*.lock"), *out.rglob(".*.lock"), *out.rglob(".unfinished.*")]
    assert left == []
    left = [path.name for path in temporary.iterdir()]
    assert [name for name in left if not name.startswith("pirl_plugin_")] == []  # failure.txt


# The ordinary suite runs one command with two interrupts; for the other faults, it has tests of the
# functions that all commands share (tests/system).
def commands(chosen="", names=READING):
    return pytest.mark.parametrize(
        "command",
        [name if name == chosen else pytest.param(name, marks=pytest.mark.slow) for name in names],
    )


@pytest.mark.parametrize("number", [0, 1, 4])
@commands()
def test_full_disk(number, command, checkpoint, image_folder, folders):
    if number == 4 and command in ("knn", "embed"):
        pytest.skip("it writes fewer files")
    fault = FULL_DISK.format(folder=str(folders[0]), number=number)
    words = arguments(command, checkpoint, image_folder, folders[0])
    with start(words, folders, fault) as run:
        check_end(run, folders, [1], seconds=300)
        assert "No space left on device" in run.err
        assert str(folders[0]) in run.err


@commands(names=COMMANDS)
def test_closed_pipe(command, checkpoint, image_folder, folders):
    """Results are written although nobody reads the console."""
    out = folders[0]
    words = arguments(command, checkpoint, image_folder, out)
    program = [sys.executable, "-m", "pirl_plugin", *words]
    read, closed = os.pipe()
    os.close(read)
    done = subprocess.run(program, stdout=closed, stderr=subprocess.PIPE, text=True, check=False)
    os.close(closed)
    assert (done.returncode, TRACEBACK in done.stderr) == (0, False), done.stderr
    results = {
        "train": "checkpoint.torch",
        "quickstart": "report.html",
        "knn": "results.json",
        "linear": "classifier.torch",
        "finetune": "classifier.torch",
        "export": "trunk.pth",
        "prepare": "train/ants/0.jpg",
        "configs": "",
    }
    assert (out / results.get(command, "features.npz")).exists()


@commands()
def test_killed_worker(command, checkpoint, image_folder, folders):
    mark = folders[2] / "mark"
    words = arguments(command, checkpoint, image_folder, folders[0])
    variables = {"OMP_NUM_THREADS": "2"}  # with one thread, training has no loader process
    with start(words, folders, at_a_read("kill()", mark), **variables) as run:
        wait_until(lambda: mark.exists() or run.process.poll() is not None)
        check_end(run, folders, [1], seconds=200)


@commands()
def test_interrupt(command, checkpoint, image_folder, folders):
    """One Ctrl-C during an ordinary read, with loader processes."""
    mark = folders[2] / "mark"
    words = arguments(command, checkpoint, image_folder, folders[0])
    with start(words, folders, at_a_read("time.sleep(1)", mark)) as run:
        wait_until(lambda: mark.exists() or run.process.poll() is not None)
        os.killpg(run.process.pid, signal.SIGINT)
        check_end(run, folders, [128 + signal.SIGINT])


@commands("prepare", COMMANDS)
def test_two_interrupts(command, checkpoint, image_folder, folders):
    """Two Ctrl-C during a hanging read."""
    mark = folders[2] / "mark"
    file = {"export": checkpoint.name, "configs": "/quick_jigsaw.yaml"}.get(command, "/ants/3.jpg")
    words = arguments(command, checkpoint, image_folder, folders[0])
    with start(words, folders, at_a_read("hang()", mark, file)) as run:
        wait_until(lambda: mark.exists() or run.process.poll() is not None)
        os.killpg(run.process.pid, signal.SIGINT)
        time.sleep(3)
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGINT)
        # On a busy machine, the second one may arrive during interpreter shutdown.
        check_end(run, folders, [128 + signal.SIGINT, -signal.SIGINT])


@pytest.mark.slow
def test_two_terminations__end_run_started_by_quickstart(checkpoint, image_folder, folders):
    """The signals reach only the quickstart, not the process group."""
    hung = folders[2] / "hung"
    words = arguments("quickstart", checkpoint, image_folder, folders[0])
    is_training = "'quickstart' not in sys.argv"
    hang_in_training = f"if {is_training}: open({str(hung)!r}, 'w').close(); hang()"
    with start(words, folders, at_a_read(hang_in_training, folders[2] / "mark")) as run:
        wait_until(lambda: hung.exists() or run.process.poll() is not None)
        for _ in range(2):
            run.process.terminate()
            time.sleep(3)
        check_end(run, folders, [128 + signal.SIGTERM])


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_prepare__ends_on_hanging_read(workers, image_folder, folders):
    """Workers read ahead, or this process reads; for runs, see ``tests/vissl/run``."""
    words = ["prepare", str(image_folder / "train"), str(folders[0]), "--workers", str(workers)]
    fault = LIMIT + at_a_read("hang()", folders[2] / "mark")
    with start(words, folders, fault) as run:
        check_end(run, folders, [1], "no image was read for 0.05 minutes: reading ", seconds=200)
        assert f"{image_folder}/train/ants/3.jpg does not return" in run.err


@pytest.mark.parametrize("hanging", ["image", "folder"])
@commands()
def test_first_wait_without_end(hanging, command, checkpoint, image_folder, folders):
    """The first image, and the folder, are read before anything else starts."""
    mark = folders[2] / "mark"
    fault = at_a_read("hang()", mark, "/ants/0.jpg")
    if hanging == "folder":
        fault = at_a_read("hang()", mark, "/train/ants").replace('"open"', '"os.scandir"')
    words = arguments(command, checkpoint, image_folder, folders[0])
    with start(words, folders, LIMIT + fault) as run:
        begin = "no image was read for 0.05 minutes"
        if (command, hanging) == ("quickstart", "image"):  # its training is the first to read one
            begin = f"Pre-training failed with exit status 1: pirl_plugin: {begin}"
        check_end(run, folders, [1], begin, seconds=200)
        verb = "opening" if hanging == "folder" else "reading"
        assert f": {verb} {image_folder}/train/ants" in run.err


@commands()
def test_interrupt__ends_first_read_without_end(command, checkpoint, image_folder, folders):
    mark = folders[2] / "mark"
    words = arguments(command, checkpoint, image_folder, folders[0])
    with start(words, folders, at_a_read("hang()", mark, "/ants/0.jpg")) as run:
        wait_until(lambda: mark.exists() or run.process.poll() is not None)
        os.killpg(run.process.pid, signal.SIGINT)
        check_end(run, folders, [128 + signal.SIGINT])
