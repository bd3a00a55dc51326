"""Which processor this process runs on, and how much of it."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from pathlib import Path

_CONTROL_GROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Return how many cores schedulers and containers let this process use, at least 1."""
    cores = float(os.cpu_count() or 1)
    if sys.platform == "linux":
        cores = len(os.sched_getaffinity(0))
    # The container's limit, from control groups: CPU time per period.
    with contextlib.suppress(OSError, ValueError):  # without a limit, the first is "max"
        quota, period = (_CONTROL_GROUPS / "cpu.max").read_text().split()
        cores = min(cores, int(quota) / int(period))
    return max(1, int(cores))


def processor_name() -> str:
    """Return this machine's processor model."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
