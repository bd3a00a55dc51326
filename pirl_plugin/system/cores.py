"""Which processor this process runs on, and how much of it."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import sys
from pathlib import Path

_CONTROL_GROUPS = Path("/sys/fs/cgroup")


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
