"""What child processes import, and how many cores a process may use."""

import os
import sys

import pytest

from pirl_plugin.system import cores as processor
from pirl_plugin.system.cores import usable_cores
from tests.helpers.launched import gone, started
from tests.helpers.programs import run_python

# Its multiprocessing children must have the same import path. No signal may end them, or be lost.
STARTS_CHILDREN = """
import multiprocessing, os, signal, sys, time
from pirl_plugin.system import processes, watcher

def put_path(queue):
    for number in watcher.STOPPING:
        signal.raise_signal(number)
    queue.put((sys.path, "beside" in sys.modules))

def watch():
    signal.raise_signal(signal.SIGINT)
    with watcher.watching():
        time.sleep(100)

def start(method, target, *arguments):
    process = multiprocessing.get_context(method).Process(target=target, args=arguments)
    with watcher.deferring():
        process.start()
    return process

if __name__ == "__main__":
    multiprocessing.set_forkserver_preload(["decimal", "beside"])
    environment = dict(os.environ)
    with processes.sharing_import_path(), watcher.watching():
        for method in ("spawn", "forkserver"):
            queue = multiprocessing.get_context(method).Queue()
            process = start(method, put_path, queue)
            # The fork server preloads modules that only sys.path finds.
            assert queue.get() == (sys.path, method == "forkserver")
            process.join()
            assert process.exitcode == 0, method
        process = start("spawn", watch)
        process.join()
        assert process.exitcode == 128 + signal.SIGINT
        print(watcher.run_command(processes.own_command("--version")))
    assert dict(os.environ) == environment
"""


def test_children__ignore_current_folder_and_end_quietly(tmp_path):
    script = tmp_path / "bin" / "script.py"
    script.parent.mkdir()
    script.write_text(STARTS_CHILDREN)
    (script.parent / "beside.py").touch()
    folder = tmp_path / "current"
    folder.mkdir()
    for name in ("random", "socket", "decimal", "torch", "pirl_plugin"):
        (folder / f"{name}.py").write_text("open('ran', 'a').write(__name__)\n")
    done = run_python(script, folder=folder)
    assert done.stdout.splitlines()[-1:] == ["0"], done.stderr
    assert done.stderr == ""
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "250000 100000"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000"}, 5),
        ({}, 5),
    ],
)
def test_usable_cores__respect_affinity_and_container(tmp_path, monkeypatch, files, cores):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # often set for processes on a cluster
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3, 4}, raising=False)
    monkeypatch.setattr(processor.sys, "platform", "linux")
    monkeypatch.setattr(processor, "_CONTROL_GROUPS", tmp_path)
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    assert usable_cores() == cores


STARTS_COMMAND = """
import subprocess
from pirl_plugin.system.processes import own_command

command = own_command()
command[2] = command[2].replace("main()", "print('ready', flush=True); import time; time.sleep(99)")
subprocess.run(command)
"""


def test_own_command__ends_with_killed_parent(tmp_path):
    command = [sys.executable, "-c", STARTS_COMMAND]
    with started([], tmp_path / "console", command=command) as run:
        run.wait_for("ready")
        run.process.kill()
        run.process.wait()
        assert gone(run)
