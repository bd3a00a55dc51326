"""Timing that a noisy machine does not spoil: in turn, in one process, several times."""

from __future__ import annotations

import ctypes
import gc
import itertools
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

_HEAD_START = 10_000_000  # cycles of a GPU: about 6 ms, in which Python launches a thousand kernels


def device_of(options: argparse.Namespace) -> str:
    """``--device``; where it was left out, a GPU if there is one.

    Raises:
        SystemExit: there is none, and it was asked for.
    """
    import torch

    available = "cuda" if torch.cuda.is_available() else "cpu"
    if options.device == "cuda" != available:
        raise SystemExit(
            "pirl_plugin: --device = cuda: expected a device that is here, which is cpu alone; "
            "leave the option out"
        )
    return options.device or available


def interleave(
    functions: Mapping[str, Callable[[], Any]],
    rounds: int,
    warm_up: int = 1,
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Call every function once a round, in an order that shifts from round to round.

    What slows the machine down for a while so slows all of them, and their ratio stays.

    Args:
        functions: what to time, by name; on a CPU each returns only when its work is done.
        rounds: calls of each, at least 1.
        warm_up: untimed calls of each beforehand.
        device: ``cpu``, or ``cuda`` to time with events on the GPU.
        clock: of a CPU, seconds; ``time.process_time`` for work of one thread: what other programs
            take of the core then does not count, only what they take of caches and memory.

    Returns:
        Seconds of each call, by name, in the order of the rounds.

    Raises:
        ValueError: fewer than one round.

    Example:
        >>> sorted(interleave({"a": list, "b": dict}, rounds=3))
        ['a', 'b']
    """
    if rounds < 1:
        raise ValueError(f"rounds is {rounds}; expected at least 1")
    names = list(functions)
    for name in names * warm_up:
        functions[name]()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            seconds[name] += seconds_between(_one_part(functions[name]), device, clock)
    return seconds


def seconds_between(
    work: Callable[[Callable[[], None]], Any],
    device: str,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Time the parts of some work.

    Args:
        work: is given a function, and calls it at the end of each of its parts.
        device: ``cpu``, or ``cuda``: CUDA events then time what the GPU does, which nothing waits
            for in between.
        clock: of a CPU, seconds.

    Returns:
        Seconds of each part.

    Example:
        >>> len(seconds_between(lambda end_part: [end_part(), end_part()], "cpu"))
        2
    """
    if device == "cpu":
        times = [clock()]
        work(lambda: times.append(clock()))
        return [after - before for before, after in itertools.pairwise(times)]
    import torch

    events: list[Any] = []

    def record() -> None:
        events.append(torch.cuda.Event(enable_timing=True))
        events[-1].record()

    torch.cuda.synchronize()
    # The GPU waits before the first event, so that launches are queued ahead of it: in a training
    # step, too, they are queued behind the trunk's, and the GPU never waits for one.
    torch.cuda._sleep(_HEAD_START)
    record()
    work(record)
    torch.cuda.synchronize()
    return [before.elapsed_time(after) / 1e3 for before, after in itertools.pairwise(events)]


def _one_part(function: Callable[[], Any]) -> Callable[[Callable[[], None]], None]:
    def work(end_part: Callable[[], None]) -> None:
        function()
        end_part()

    return work


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """Median of the ratios of what was timed in the same rounds.

    Example:
        >>> ratio([2.0, 9.0, 4.0], [1.0, 3.0, 2.0])
        2.0
    """
    return statistics.median(n / d for n, d in zip(numerator, denominator, strict=True))


def peak_extra_bytes(function: Callable[[], Any], device: str) -> int:
    """Peak memory during a call, less what was in use before: the process's, or the GPU's.

    Args:
        function: what to measure.
        device: ``cpu`` (resident memory, as Linux keeps it) or ``cuda`` (torch's allocator).

    Raises:
        SystemExit: the system does not keep the peak of a process's memory.
    """
    import torch

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


def _status(name: str) -> int:
    return _kilobytes(Path("/proc/self/status"), name) * 1024


def _kilobytes(file: Path, name: str) -> int:
    lines = (line.split() for line in file.read_text().splitlines())
    return next(int(words[1]) for words in lines if words[0] == f"{name}:")
