"""Processes: children, their imports, loader workers, and available cores."""

from __future__ import annotations

import contextlib
import ctypes
import math
import multiprocessing
import os
import platform
import signal
import sys
from collections.abc import Iterator, Sequence
from multiprocessing import connection
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
    """Return ``pirl-plugin ARGUMENTS`` as a command for a child of this process.

    If this process is killed, the child gets SIGTERM, on which a run saves and ends.
    """
    end_with_parent = "from pirl_plugin.system.processes import end_with_parent; end_with_parent()"
    main = "from pirl_plugin.cli import main; main()"
    return [sys.executable, "-c", f"{end_with_parent}; {main}", *arguments]


def end_with_parent() -> None:
    """Ask Linux to send SIGTERM to this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def sharing_import_path() -> Iterator[None]:
    """Let Python processes that are started in a block import from this process's folders only.

    Python starts ranks, the fork server and the semaphore tracker with ``-c``, and would put the
    current folder first, where a file ``random.py`` would replace Python's own.
    """
    folders = [folder or os.getcwd() for folder in sys.path]
    # A terminated process leaves semaphores, and the tracker would print a warning about them.
    warnings = [*filter(None, [os.environ.get("PYTHONWARNINGS")]), "ignore:resource_tracker"]
    variables = {
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": os.pathsep.join(folders),
        "PYTHONWARNINGS": ",".join(warnings),
    }
    previous = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def loader_workers() -> list[Any]:
    """Return this process's loader workers."""
    return [child for child in multiprocessing.active_children() if child.daemon]


def killed_worker(workers: Sequence[Any]) -> str:
    """Return a sentence about a killed loader worker; empty if none was killed.

    A batch stays in a worker's memory until this process asks for it. If the worker has ended, the
    error is a refused or closed connection. Otherwise torch notices the end, and raises a
    RuntimeError.
    """
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
    workers = loader_workers()
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join(GRACE_S)


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
