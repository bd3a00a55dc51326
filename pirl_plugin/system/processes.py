"""Child processes: how they import, how they ended, and those of image loaders."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

GRACE_S = 5.0
"""Time that child processes get to end by themselves, in seconds."""
_PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>


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
    """Return ``pirl-plugin ARGUMENTS`` as a command for a child, which ends with this process."""
    end_with_parent = "from pirl_plugin.system.processes import end_with_parent; end_with_parent()"
    main = "from pirl_plugin.cli import main; main()"
    return [sys.executable, "-c", f"{end_with_parent}; {main}", *arguments]


def end_with_parent() -> None:
    """Ask Linux to send SIGTERM to this process when its parent ends; a run then saves."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def sharing_import_path() -> Iterator[None]:
    """Let Python processes that are started in a block import from this process's folders only.

    Python starts ranks, the fork server and the semaphore tracker with ``-c``, and would put the
    current folder first, where a file ``random.py`` would replace Python's own.
    """
    folders = [folder or os.getcwd() for folder in sys.path]
    warnings = os.environ.get("PYTHONWARNINGS", "")
    variables = {
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": os.pathsep.join(folders),
        # A terminated process leaves semaphores, and the tracker would warn about them.
        "PYTHONWARNINGS": f"{warnings},ignore:resource_tracker",
    }
    previous = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(previous)


def loader_workers() -> list[Any]:
    """Return this process's loader workers."""
    return [child for child in multiprocessing.active_children() if child.daemon]


def kill_workers() -> None:
    """Kill this process's loader workers."""
    workers = loader_workers()
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join(GRACE_S)
