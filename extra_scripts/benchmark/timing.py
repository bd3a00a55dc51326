"""Timing on a noisy machine: call all functions in turn, in one process, for several rounds."""

from __future__ import annotations

import ctypes
import gc
import itertools
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_HEAD_START = 10_000_000  # GPU cycles, about 6 ms, while Python launches kernels


def interleave(
    functions: Mapping[str, Callable[[], Any]],
    rounds: int,
    warm_up: int = 1,
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Call every function once per round, in rotating order, so that ratios are robust.

    Args:
        functions: the functions to time, by name.
        rounds: number of timed calls per function, at least 1.
        warm_up: number of untimed calls per function before the rounds.
        device: ``cpu``, or ``cuda`` to time with events on the GPU.
        clock: seconds on a CPU; ``time.process_time`` for single-threaded work.

    Returns:
        Seconds per round, by name.
    """
    names = list(functions)
    for name in names * warm_up:
        functions[name]()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            # The default keeps this function, whatever `name` is later.
            def work(_: object, call: Callable[[], Any] = functions[name]) -> None:
                call()

            seconds[name] += seconds_between(work, device, clock)
    return seconds


def seconds_between(
    work: Callable[[Callable[[], None]], Any],
    device: str,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Return the seconds per part of ``work``, which calls its argument between parts.

    On ``cuda``, events time the GPU without synchronizing between parts.
    """
    if device == "cpu":
        times = [clock()]
        work(lambda: times.append(clock()))
        times.append(clock())
        return [after - before for before, after in itertools.pairwise(times)]
    import torch

    events: list[Any] = []

    def record() -> None:
        events.append(torch.cuda.Event(enable_timing=True))
        events[-1].record()

    torch.cuda.synchronize()
    torch.cuda._sleep(_HEAD_START)  # so launches are queued, as behind a trunk in training
    record()
    work(record)
    record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) / 1e3 for before, after in itertools.pairwise(events)]


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """Return the median ratio between two times over the rounds."""
    return statistics.median(n / d for n, d in zip(numerator, denominator, strict=True))


def peak_extra_bytes(function: Callable[[], Any], device: str) -> int:
    """Return the peak memory during a call minus the memory before it.

    On ``cpu`` this is the process's resident memory (Linux only), on ``cuda`` torch's allocator.
    """
    gc.collect()
    if device == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        return torch.cuda.max_memory_allocated() - before
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # return freed memory, so that its reuse counts
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _status("VmRSS")
    function()
    return _status("VmHWM") - before


def _status(key: str) -> int:
    """Return one of this process's sizes, in bytes."""
    (size,) = re.findall(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(size)


def summary(times: Sequence[float], peer: Sequence[float] | None = None) -> dict[str, Any]:
    """Return figures for a timed call, with the ratio to VISSL's, for tables and ``--json``."""
    return {
        "seconds_min": min(times),
        "seconds_median": statistics.median(times),
        "speedup_over_vissl": ratio(peer, times) if peer else None,
    }
