"""Console output at the end of a run."""

import os
import subprocess
import sys
from contextlib import closing

import pytest

from pirl_plugin.system.console import Progress, warn
from pirl_plugin.system.failures import MissingFile


def test_progress__is_on_stderr_and_sparse_in_logs(monkeypatch, capsys):
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with closing(Progress("features", 100, began=now[0])) as progress:
        for _ in range(10):  # a batch of 10 every 20 s, a line every 30 s
            now[0] += 20
            progress.update(10)
    out, errors = capsys.readouterr()
    lines = errors.splitlines()
    assert out == ""
    assert lines[0] == "features  10/100 images  0 images/s  0:03:00 left"
    assert lines[-1] == "features  100/100 images  0 images/s  0:00:00 left"
    assert len(lines) == 6


def test_streams__may_be_closed_when_a_command_starts(tmp_path):
    """As under cron; a file that is opened next must not receive the output."""
    code = """
import os, sys
from pirl_plugin.system.console import prepare_streams
prepare_streams()
with open("file", "w"):
    sys.stdout.flush()
    os.write(1, b"out")
    os.write(2, b"err")
"""
    command = ["sh", "-c", '"$0" "$@" <&- >&- 2>&-', sys.executable, "-c", code]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.parametrize("place", ["a closed pipe", "a full disk"])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_command__writes_its_results_whatever_the_console_does(stream, place, tmp_path):
    code = f"""
import sys
from pirl_plugin.cli import main
def work(arguments):
    for _ in range(3):
        print("a" * 10_000, file=sys.{stream})
    open("results", "w").close()
    sys.exit()  # as argparse does after --help
main(work)
"""
    if place == "a full disk":
        console = os.open("/dev/full", os.O_WRONLY)
    else:
        read, console = os.pipe()
        os.close(read)  # as `head` does
    other = "stderr" if stream == "stdout" else "stdout"
    pipes = {stream: console, other: subprocess.PIPE}
    done = subprocess.run([sys.executable, "-c", code], text=True, cwd=tmp_path, **pipes)
    os.close(console)
    assert (tmp_path / "results").exists()
    sentence = ""
    if (stream, place) == ("stdout", "a full disk"):
        sentence = (
            "pirl_plugin: No space left on device: standard output. Free some space there, or "
            "choose another folder.\n"
        )
    assert getattr(done, other) == sentence
    assert done.returncode == bool(sentence)


def test_streams__escape_control_characters():
    code = r"""
import logging, sys
from pirl_plugin.system.console import prepare_streams
prepare_streams()
name = "\x1b[31m\u202e\ud800\udcff\x9b"
print(f"é\t{name}\nb")
sys.stderr.write(f"\r{name}")
sys.exit(name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    escaped = r"\x1b[31m\u202e\ud800\xff\x9b"
    assert done.stdout.decode() == f"é\t{escaped}\nb\n"
    assert done.stderr.decode() == f"\r{escaped}{escaped}\n"


def test_warning__is_one_printable_line(caplog):
    warn("a\n\x1b[31m")
    assert caplog.messages == [r"a\n\x1b[31m"]
    assert caplog.records[0].filename == "test_console.py"


def test_refusal__is_one_printable_line():
    assert str(MissingFile("a\n\x1b[31m")) == r"a\n\x1b[31m"
