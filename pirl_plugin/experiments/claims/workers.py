"""Make models one after another, or side by side, each on a GPU of its own."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TYPE_CHECKING

from pirl_plugin.experiments.claims.model import Settings, make

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.queues import Queue

    from pirl_plugin.experiments.claims.claims_file import ClaimRow
    from pirl_plugin.experiments.claims.plan import Job


def finished_rows(
    jobs: Sequence[Job],
    settings: Settings,
    side_by_side: int,
    announce: Callable[[Job], object],
) -> Iterator[tuple[Job, ClaimRow | str]]:
    """Each job with its row, or with what is to be said of its failure, as they end.

    Args:
        jobs: in the order in which they are started.
        settings: of all of them.
        side_by_side: how many at a time. With more than one, each has a process and sees one GPU.
        announce: called before a job starts; where they run side by side, of all at the beginning.
    """
    if side_by_side == 1:
        for job in jobs:
            announce(job)
            yield job, _outcome(job, settings)
        return
    context = multiprocessing.get_context("spawn")
    numbers = context.Queue()
    for number in range(side_by_side):
        numbers.put(number)
    with ProcessPoolExecutor(side_by_side, context, _take_device, (numbers,)) as pool:
        for job in jobs:
            announce(job)
        futures = {pool.submit(_outcome, job, settings): job for job in jobs}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _outcome(job: Job, settings: Settings) -> ClaimRow | str:
    try:
        return make(job, settings)
    except (SystemExit, OSError, ValueError) as error:
        return str(error) or type(error).__name__


def _take_device(numbers: Queue[int]) -> None:
    """This process, and the runs it starts, see one GPU of those that the user lets us see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    number = numbers.get()
    devices = visible.split(",") if visible else None
    os.environ["CUDA_VISIBLE_DEVICES"] = devices[number % len(devices)] if devices else str(number)
