"""A command followed line by line."""

import subprocess
import sys
import time

from pirl_plugin.utils.subprocesses import stream


def python(code):
    return [sys.executable, "-c", code]


def test_stream__gives_lines_log_and_status(tmp_path):
    log, seen = tmp_path / "log", []
    code = "import sys; [print(i) for i in range(5)]; print('end', file=sys.stderr); sys.exit(3)"
    ended = stream(python(code), seen.append, log, keep=2)
    assert (ended.status, ended.last) == (3, "end")
    assert len(ended.tail) == 2
    assert sorted(seen) == sorted(log.read_text().splitlines(keepends=True))
    assert len(seen) == 6
    stream(python("print('more')"), log=log, append=True)
    assert log.read_text().endswith("more\n")
    stream(python("print('new')"), log=log)
    assert log.read_text() == "new\n"


def test_stream__hands_on_variables():
    seen = []
    code = "import os; print(os.environ['A'], os.environ['PYTHONUNBUFFERED'])"
    stream(python(code), seen.append, environment={"A": "b"})
    assert seen == ["b 1\n"]


def test_stream__kills_the_command_and_what_it_started():
    code = (
        "import subprocess, sys, time; print('first')\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('second'); time.sleep(60)"
    )
    began = time.monotonic()
    ended = stream(python(code), lambda line: line == "second\n", own_session=True)
    assert ended.status == -9
    assert time.monotonic() - began < 30


def test_sigterm__ends_the_command_that_is_followed_and_waits_for_it(tmp_path):
    run = (
        "import signal, sys, time\n"
        "def save(*_): open('saved', 'w').close(); sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, save); print('began'); time.sleep(60)"
    )
    code = (
        "import sys\n"
        "from pirl_plugin.utils.subprocesses import ended_by_sigterm, stream\n"
        "with ended_by_sigterm():\n"
        f"    stream([sys.executable, '-c', {run!r}], lambda line: print(line, flush=True))"
    )
    with subprocess.Popen(python(code), cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "began\n"
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 1  # Interrupted, which pirl-plugin turns into 143
    assert (tmp_path / "saved").exists()
