"""Processes: children, their imports, loader workers, and available cores."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import multiprocessing
import os
import platform
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import connection, util
from pathlib import Path
from typing import Any

GRACE_S = 5.0
"""Time that child processes get to end by themselves, in seconds."""
_PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>
_CONTROL_GROUPS = Path("/sys/fs/cgroup")


def describe_exit(exit_code: int) -> str:
    """Describe how a child ended, from its exit code.

    Example:
        >>> describe_exit(2), describe_exit(-15)
        ('ended with exit status 2', 'was ended by SIGTERM')
    """
    if exit_code >= 0:
        return f"ended with exit status {exit_code}"
    name = signal.Signals(-exit_code).name
    cause = ", by a user, or by the system if memory ran out" if name == "SIGKILL" else ""
    return f"was ended by {name}{cause}"


def own_command(*arguments: str) -> list[str]:
    """Return ``pirl-plugin ARGUMENTS`` as a command for a child with this process's import path.

    If this process is killed, the child gets SIGTERM, on which a run saves and ends.
    """
    end_with_parent = "from pirl_plugin.system.processes import end_with_parent; end_with_parent()"
    main = "from pirl_plugin.cli import main; main()"
    return [sys.executable, "-c", f"{_first_statements()}; {end_with_parent}; {main}", *arguments]


def end_with_parent() -> None:
    """Ask Linux to send SIGTERM to this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@functools.cache
def share_import_path() -> None:
    """Let multiprocessing start processes with this process's import path.

    Python starts spawned processes, the fork server and the semaphore tracker with ``-c``. This
    puts the current folder first, where a file ``random.py`` would replace Python's own.
    """
    start = util.spawnv_passfds

    def start_with_same_imports(program: Any, arguments: Sequence[Any], descriptors: Any) -> Any:
        command = list(arguments)
        option = command.index("-c")
        command[option + 1] = f"{_first_statements()}; {command[option + 1]}"
        # A terminated process leaves semaphores, and the tracker would print a warning about them.
        command[option:option] = ["-W", "ignore:resource_tracker"]
        return start(program, command, descriptors)

    util.spawnv_passfds = start_with_same_imports  # type: ignore[assignment]


def _first_statements() -> str:
    """Return the first statements for a process that imports only from this one's folders.

    Until the process handles SIGINT, the signal ends it like others. Python would print a
    traceback.
    """
    folders = [folder or os.getcwd() for folder in sys.path]
    return (
        f"import sys; sys.path[:] = {folders!a}; import signal; "
        f"signal.signal(signal.SIGINT, signal.SIG_DFL)"
    )


def loader_workers() -> list[Any]:
    """Return this process's loader workers, including those that ended unnoticed."""
    children = multiprocessing.process._children  # type: ignore[attr-defined]
    return [child for child in children if child.daemon]


def killed_worker(workers: Sequence[Any]) -> str:
    """Return a sentence about a killed loader worker; empty if none was killed.

    A batch stays in a worker's memory until this process asks for it. If the worker has ended, the
    error is a refused or closed connection. Otherwise torch notices the end, and raises a
    RuntimeError.
    """
    with _ignoring_worker_ends():
        # A worker's connection closes shortly before it ends.
        ended = connection.wait([worker.sentinel for worker in workers], timeout=1)
        for worker in workers:
            if worker.sentinel in ended:
                worker.join()
                if worker.exitcode:
                    return f"a loader process {describe_exit(worker.exitcode)}"
    return ""


def kill_workers() -> None:
    """Kill this process's loader workers."""
    with _ignoring_worker_ends():
        workers = loader_workers()
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join(GRACE_S)


@contextlib.contextmanager
def _ignoring_worker_ends() -> Iterator[None]:
    """Disable torch's SIGCHLD handler, which raises an exception when a worker ends."""
    if threading.current_thread() is not threading.main_thread():  # handlers run only in that one
        yield
        return
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, handler)


def usable_cores() -> int:
    """Return how many cores this process may use, at least 1.

    Schedulers pin processes to cores, and containers limit CPU time. Both often allow less than the
    machine's cores.
    """
    cores = float(os.cpu_count() or 1)
    if sys.platform == "linux":
        cores = len(os.sched_getaffinity(0))
    # The container's limit, from control groups: CPU time per period.
    with contextlib.suppress(OSError, ValueError):  # without a limit, the first is "max"
        quota, period = (_CONTROL_GROUPS / "cpu.max").read_text().split()
        cores = min(cores, int(quota) / int(period))
    return max(1, int(cores))


def thread_limit() -> float:
    """Return ``OMP_NUM_THREADS``, the limit on threads per process; infinity without one.

    If torchrun set it to 1 in every process, this is not the user's limit.
    """
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if limit.isdecimal() and int(limit) > 0 and "TORCHELASTIC_RUN_ID" not in os.environ:
        return int(limit)
    return math.inf


def processor_name() -> str:
    """Return this machine's processor model."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
