"""What child processes import, and how many cores a process may use."""

import os

import pytest

from pirl_plugin.system import processes
from pirl_plugin.system.processes import thread_limit, usable_cores
from tests.helpers.programs import run_python

# Its multiprocessing children must have the same import path.
STARTS_CHILDREN = """
import multiprocessing, signal, sys
from pirl_plugin.system import processes, watcher

def put_path(queue):
    queue.put(sys.path)

if __name__ == "__main__":
    processes.share_import_path()
    multiprocessing.set_forkserver_preload(["decimal"])
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        context.Process(target=put_path, args=[queue]).start()
        assert queue.get() == sys.path, method
    # A signal may end a child before it has a handler; SIGINT would leave a traceback.
    process = multiprocessing.get_context("spawn").Process(
        target=signal.raise_signal, args=[signal.SIGINT]
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGINT
    print(watcher.run_command(processes.own_command("--version")))
"""


def test_children__ignore_current_folder_and_end_quietly(tmp_path):
    script = tmp_path / "bin" / "script.py"
    script.parent.mkdir()
    script.write_text(STARTS_CHILDREN)
    folder = tmp_path / "current"
    folder.mkdir()
    for name in ("random", "socket", "decimal", "torch", "pirl_plugin"):
        (folder / f"{name}.py").write_text("open('ran', 'a').write(__name__)\n")
    done = run_python(script, folder=folder)
    assert done.stdout.splitlines()[-1:] == ["0"], done.stderr
    assert done.stderr == ""
    assert not (folder / "ran").exists()


def test_thread_limit__follows_user_but_not_torchrun(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")  # a list gives the threads per nesting level
    assert thread_limit() == 3
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # torchrun sets OMP_NUM_THREADS to 1
    assert thread_limit() == float("inf")


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
    monkeypatch.setattr(processes.sys, "platform", "linux")
    monkeypatch.setattr(processes, "_CONTROL_GROUPS", tmp_path)
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    assert usable_cores() == cores
