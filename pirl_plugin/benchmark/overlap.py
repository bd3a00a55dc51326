"""How much of the time of its input a run on a CPU saves with workers, of what its cores allow.

Runs of this plugin's PIRL through VISSL's engine, in turn without a worker and with some, each in a
process of its own. Without a worker a step is its input and then the network's work, so such a run
tells both: the time of a step whose input lies in memory, and that of the input alone. It uses the
cores that the process may: ``taskset -c 0`` in front measures one.
"""

from __future__ import annotations

import argparse
import statistics
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from pirl_plugin.benchmark.arguments import WARM_UP_STEPS
from pirl_plugin.benchmark.images import image_folder
from pirl_plugin.benchmark.train import QUICK, STEP, measure_run
from pirl_plugin.utils.processes import usable_cores

if TYPE_CHECKING:
    from pathlib import Path


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; returns ``{"rows": [...], "cores": …}``, a row for each number of workers.

    Raises:
        SystemExit: a run ended early; quotes the end of its log.
    """
    cores = usable_cores()
    steps: dict[int, list[dict[str, float]]] = {0: [], options.workers: []}
    wanted = options.batch * (options.steps + WARM_UP_STEPS + 2)
    with image_folder(options.data, wanted, max(options.rows, wanted)) as folder:
        for turn in range(options.rounds):
            for workers, found in steps.items():
                title = f"{workers} workers, run {turn + 1} of {options.rounds}"
                found += _measure(workers, folder, options, cores, title)
    rows = [_row(workers, steps, cores) for workers in steps]
    print(f"Milliseconds a step of {options.batch} images, medians, on {cores} cores")
    print(tabulate(rows, "keys", ".3g"))
    return {"rows": rows, "cores": cores, "options": {k: str(v) for k, v in vars(options).items()}}


def _measure(
    workers: int, folder: Path, options: argparse.Namespace, cores: int, title: str
) -> list[dict[str, float]]:
    kind = f"{QUICK if options.quick else 'ours'}, {options.precision}"
    single = {"device": "cpu", "workers": workers, "threads": options.threads or cores}
    return measure_run(kind, folder, argparse.Namespace(**{**vars(options), **single}), title)


def _row(workers: int, steps: dict[int, list[dict[str, float]]], cores: int) -> dict[str, Any]:
    def median(workers: int) -> tuple[float, float, float]:
        found = [(step["read_sample"], step[STEP]) for step in steps[workers]]
        columns = zip(*((read, total - read, total) for read, total in found), strict=True)
        read, rest, total = map(statistics.median, columns)
        return read, rest, total

    alone, model, serial = median(0)
    read, rest, reached = median(workers)
    bound = least_step(alone, model, workers, cores)
    return {
        "workers": workers,
        "input": read,
        "model": rest,
        "step": reached,
        "least step": bound,
        "times 0 workers": serial / reached,
        "share of what can be saved": share_saved(serial, bound, reached),
    }


def least_step(alone: float, model: float, workers: int, cores: int) -> float:
    """The shortest step that the cores allow, where the model's work fills them all.

    The input takes a core's time wherever it is done. Without workers other cores wait meanwhile.

    Args:
        alone: time of a step's input on one core.
        model: time of a step whose input lies in memory, on all cores.
        workers: that read beside the process itself, each on one core.
        cores: that the run may use.

    Example:
        >>> least_step(alone=60.0, model=300.0, workers=1, cores=2)
        330.0
        >>> least_step(alone=60.0, model=300.0, workers=1, cores=1)
        360.0
        >>> least_step(alone=900.0, model=300.0, workers=1, cores=4)
        750.0
    """
    return model + alone / min(cores, workers + 1)


def share_saved(serial: float, bound: float, reached: float) -> float | None:
    """Share of the time that can be saved which was saved; None where there is none to save.

    Example:
        >>> share_saved(serial=360.0, bound=330.0, reached=333.0)
        0.9
    """
    return (serial - reached) / (serial - bound) if serial - bound > 0.01 * serial else None
