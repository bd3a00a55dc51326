"""Processes of this machine: whether one is alive, how many cores it has, which machine this is."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import subprocess
from pathlib import Path

RANK_PROCESS = "PIRL_PLUGIN_RANK_PROCESS"
"""Variable of the environment: the process number of the rank that started a fork server."""


def machine_id() -> str:
    """Where a process number means something: host, boot and, on Linux, process namespace."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def usable_cores() -> int:
    """Cores that this process may use: those of its affinity mask, where there is one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor_name() -> str:
    """The model of this machine's processor, for people."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def process_birth(pid: int) -> str:
    """When a process was started, in the kernel's own terms; ``""`` where that is unknown."""
    fields = _stat_fields(pid)
    if fields:
        return fields[19]  # starttime, in ticks since boot
    if Path("/proc/self/stat").exists():
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # macOS
        ps = ["ps", "-o", "lstart=", "-p", str(pid)]
        return subprocess.run(ps, capture_output=True, text=True, check=True).stdout.strip()
    return ""


def is_alive(pid: int, birth: str = "") -> bool:
    """Whether the process that was started at ``birth`` runs or is stopped; a zombie does not.

    Example:
        >>> is_alive(os.getpid(), process_birth(os.getpid())), is_alive(os.getpid(), "then")
        (True, False)
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    fields = _stat_fields(pid)
    if fields and fields[0] in "ZX":
        return False
    now = process_birth(pid)
    return not (birth and now) or birth == now


def _stat_fields(pid: int) -> list[str]:
    """Fields of ``/proc/PID/stat`` from the state on; empty without ``/proc`` or the process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()
