"""Make models one after another, or side by side, each on a GPU of its own."""

from __future__ import annotations

import multiprocessing
import os
import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from pirl_plugin.experiments.claims.model import make
from pirl_plugin.utils.interrupts import Interrupted
from pirl_plugin.utils.subprocesses import ended_by_sigterm

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from multiprocessing.connection import Connection

    from pirl_plugin.experiments.claims.claims_file import ClaimRow
    from pirl_plugin.experiments.claims.plan import Job
    from pirl_plugin.experiments.claims.workspace import Workspace

_BY_CTRL_C = (130, 1)  # exit codes of a job's process: while it works, and while it starts


def finished_rows(
    jobs: Sequence[Job],
    workspace: Workspace,
    side_by_side: int,
    announce: Callable[[Job], object],
) -> Generator[tuple[Job, ClaimRow | str], None, None]:
    """Each job with its row, or with what is to be said of its failure, as they end.

    Args:
        jobs: in the order in which they are started.
        workspace: of all of them.
        side_by_side: how many at a time. With more than one, each has a process and sees one GPU;
            where they need one, there must be as many.
        announce: called when a job starts; in other threads, one at a time, where they run side by
            side.

    Close it to start no more of them.
    """
    if side_by_side == 1:
        for job in jobs:
            announce(job)
            yield job, _outcome(job, workspace)
        return
    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(side_by_side):
        free.put(number)
    ending, speaking = threading.Event(), threading.Lock()

    def begin(job: Job) -> ClaimRow | str:
        if ending.is_set():
            return "pirl_plugin: not started"
        with speaking:
            announce(job)
        return _apart(job, workspace, free, ending)

    with ThreadPoolExecutor(side_by_side) as pool:
        futures = {pool.submit(begin, job): job for job in jobs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:  # nothing more is started, whatever ends this
            ending.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _apart(
    job: Job, workspace: Workspace, free: queue.SimpleQueue[int], ending: threading.Event
) -> ClaimRow | str:
    """The outcome of a job in a process of its own, which sees a GPU that no other uses.

    A terminal sends Ctrl-C to that process too, which may end before this one hears of it.
    """
    device = free.get()
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_outcome, args=(sender, job, workspace, device))
    process.start()
    sender.close()
    try:
        outcome: ClaimRow | str = receiver.recv()
    except EOFError:
        process.join()
        if process.exitcode in _BY_CTRL_C:
            ending.set()
        outcome = f"pirl_plugin: its process died (exit code {process.exitcode})"
    process.join()
    free.put(device)
    return outcome


def _send_outcome(sender: Connection, job: Job, workspace: Workspace, device: int) -> None:
    take_device(device)
    try:
        with ended_by_sigterm():
            sender.send(_outcome(job, workspace))
    except (Interrupted, KeyboardInterrupt):  # the command itself says so
        sys.exit(_BY_CTRL_C[0])


def _outcome(job: Job, workspace: Workspace) -> ClaimRow | str:
    try:
        return make(job, workspace)
    except SystemExit as error:
        return str(error)
    except Exception as error:  # whatever it is, it ends this model alone
        return f"{type(error).__name__}: {error}"


def take_device(number: int) -> None:
    """This process, and the runs it starts, see one GPU of those that the user lets us see.

    An empty ``CUDA_VISIBLE_DEVICES`` hides all of them, and stays.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = [str(number)] if visible is None else visible.split(",")
    os.environ["CUDA_VISIBLE_DEVICES"] = devices[number % len(devices)]
