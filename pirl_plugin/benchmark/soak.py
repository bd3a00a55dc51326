"""Endurance: one run of thousands of steps, and what its processes hold on to over time.

Memory (proportional set size: pages shared by several processes count once), open descriptors,
shared memory in ``/dev/shm`` and images a second, of the launcher, its ranks and their loader
workers together. What grows from the second to the last quarter of the run is a leak; the first
quarter fills caches. Linux only: the figures are those of ``/proc``.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from pirl_plugin.benchmark.images import image_folder
from pirl_plugin.benchmark.timing import MACHINES, device_of
from pirl_plugin.utils.console import VARIABLE
from pirl_plugin.utils.hydra_overrides import quoted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

_STEP = re.compile(r"\biter: (\d+);")
FIGURES = ("memory_mb", "descriptors", "shared_memory_mb", "images_per_s")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; returns ``{"rows": [...], "samples": [...]}``: quarters, and all.

    Raises:
        SystemExit: there is no ``/proc`` or no such device, or the run failed; quotes the end of
            its log.
    """
    if not Path("/proc/self/smaps_rollup").exists():
        raise SystemExit("pirl_plugin: benchmark soak: expected Linux's /proc; run it on Linux")
    device_of(options)
    with image_folder(options.data, options.images, options.images) as folder:
        samples = _measure(folder, options)
    rows = quarters(samples)
    print(tabulate(rows, "keys", ".4g"))
    return {
        "rows": rows,
        "samples": samples,
        "options": {key: str(value) for key, value in vars(options).items()},
    }


def quarters(samples: Sequence[dict[str, float]]) -> list[dict[str, Any]]:
    """Medians of each quarter of the steps, and the growth from the second to the last.

    Args:
        samples: in the order of time, each with ``step`` and :data:`FIGURES`.

    Raises:
        SystemExit: there are not enough of them.
    """
    last = samples[-1]["step"] if samples else 0
    parts: list[list[dict[str, float]]] = [[], [], [], []]
    for sample in samples:
        parts[min(3, int(4 * sample["step"] / (last + 1)))].append(sample)
    if not all(parts):
        raise SystemExit(
            f"pirl_plugin: benchmark soak: expected samples in each quarter of the run, and there "
            f"are {len(samples)} up to step {last:g}; raise --steps or lower --every"
        )
    rows: list[dict[str, Any]] = []
    for number, part in enumerate(parts, 1):
        medians = {name: statistics.median(sample[name] for sample in part) for name in FIGURES}
        rows.append({"quarter": number, "step": part[-1]["step"], **medians})
    growth = {name: rows[3][name] - rows[1][name] for name in FIGURES}
    return [*rows, {"quarter": "growth", "step": rows[3]["step"] - rows[1]["step"], **growth}]


def _measure(folder: Path, options: argparse.Namespace) -> list[dict[str, float]]:
    epoch = max(options.images // (options.processes * options.batch), 1)
    samples: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as out:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "pirl_plugin", "train", f"config={options.config}",
                f"+config/pirl/machines={MACHINES[options.device]}",
                f"config.DATA.TRAIN.DATA_PATHS=[{quoted(folder)}]",
                f"config.DATA.TRAIN.BATCHSIZE_PER_REPLICA={options.batch}",
                f"config.DATA.NUM_DATALOADER_WORKERS={options.workers}",
                f"config.DISTRIBUTED.NUM_PROC_PER_NODE={options.processes}",
                f"config.OPTIMIZER.num_epochs={-(-options.steps // epoch)}",
                "config.LOG_FREQUENCY=5",
                f"config.CHECKPOINT.DIR={quoted(Path(out) / 'run')}",
                *options.override,
            ],
            env={**os.environ, "PYTHONUNBUFFERED": "1", VARIABLE: "log"},
            text=True,
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        log = _Log(process)
        try:
            while process.poll() is None:
                time.sleep(options.every)
                _append(samples, process.pid, log.step, options.batch * options.processes)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode:
        raise SystemExit(f"pirl_plugin: the run failed: {''.join(log.tail)}")
    return samples


class _Log(threading.Thread):
    """Reads a run's output, for the number of its newest step."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__(daemon=True)
        self.step, self.tail = 0, [""]
        self._lines: Iterable[str] = process.stdout or []
        self.start()

    def run(self) -> None:
        """Read to the end."""
        for line in self._lines:
            self.tail = [*self.tail[-15:], line]
            if found := _STEP.search(line):
                self.step = int(found[1])


def _append(samples: list[dict[str, float]], pid: int, step: int, images: int) -> None:
    """Add a sample, once the run trains and has made a step since the one before."""
    before = samples[-1] if samples else {"step": 0, "seconds": time.monotonic()}
    if step <= before["step"]:
        return
    now = time.monotonic()
    rate = images * (step - before["step"]) / max(now - before["seconds"], 1e-9)
    sample = {"step": float(step), "seconds": now, "images_per_s": rate if samples else 0.0}
    samples.append({**sample, **held(pid)})


def held(pid: int) -> dict[str, float]:
    """What a process and all that it started hold: memory, descriptors, shared memory."""
    memory = descriptors = 0
    family = descendants(pid)
    for member in family:
        with contextlib.suppress(OSError):
            rollup = Path(f"/proc/{member}/smaps_rollup").read_text()
            memory += int(re.findall(r"^Pss: +(\d+) kB", rollup, re.M)[0])
            descriptors += len(os.listdir(f"/proc/{member}/fd"))
    shared = os.statvfs("/dev/shm")
    return {
        "processes": float(len(family)),
        "memory_mb": memory / 1024,
        "descriptors": float(descriptors),
        "shared_memory_mb": (shared.f_blocks - shared.f_bfree) * shared.f_frsize / 2**20,
    }


def descendants(pid: int) -> list[int]:
    """A process and all that it started, and they, that are alive."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{entry}/stat").read_text()
            parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
    family = [pid]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family
