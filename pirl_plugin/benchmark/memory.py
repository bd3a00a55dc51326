"""How much memory a call needs at its peak, beyond what was there before it."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


def peak_extra_bytes(function: Callable[[], Any], device: str) -> int:
    """Peak memory during a call, less what was in use before: the process's, or the GPU's.

    Args:
        function: what to measure.
        device: ``cpu`` (resident memory, as Linux keeps it) or ``cuda`` (torch's allocator).

    Raises:
        SystemExit: the system does not keep the peak of a process's memory.
    """
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        return torch.cuda.max_memory_allocated() - before
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what was freed goes back, and is counted again
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
    except OSError as error:
        raise SystemExit(f"pirl_plugin: peak memory is measured on Linux only: {error}") from None
    before = _status("VmRSS")
    function()
    return _status("VmHWM") - before


def available_bytes() -> int:
    """Memory that this machine can give without swapping."""
    return _kilobytes(Path("/proc/meminfo"), "MemAvailable") * 1024


def _status(name: str) -> int:
    return _kilobytes(Path("/proc/self/status"), name) * 1024


def _kilobytes(file: Path, name: str) -> int:
    lines = (line.split() for line in file.read_text().splitlines())
    return next(int(words[1]) for words in lines if words[0] == f"{name}:")
