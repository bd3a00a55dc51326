"""Start the ranks of a node, wait for them, and end all of them where one has failed.

Used in place of ``torch.multiprocessing.spawn``, which reports the first rank to end, often one
that only lost its connection to the rank that failed.
"""

from __future__ import annotations

import json
import pickle
import signal
import time
from multiprocessing import connection
from typing import TYPE_CHECKING

from pirl_plugin.utils.interrupts import ignored
from pirl_plugin.vissl.launch.failures import Failure, cause_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.process import BaseProcess

INTERRUPT_GRACE_S = 120.0  # for ranks that save when they are asked to end
GRACE_S = 5.0  # the others' time to fail by themselves, and again to end when asked

_RUNNING: list[BaseProcess] = []


class RanksFailedError(Exception):
    """Ranks of this node failed.

    Attributes:
        failures: how each of them did.
        exit_status: of the first that ended by itself, or minus the signal's number.
    """

    def __init__(self, failures: list[Failure], exit_status: int) -> None:
        self.failures, self.exit_status = failures, exit_status
        super().__init__(cause_of(failures).sentence)


def spawn(
    function: Callable[..., None],
    args: Sequence[object] = (),
    nprocs: int = 1,
    first_rank: int = 0,
    grace_s: float = GRACE_S,
    **unused: object,
) -> None:
    """Run ``function(i, *args)`` in ``nprocs`` processes until all have ended.

    The processes ignore SIGINT, which a terminal sends to all of them: this one tells them to end.

    Args:
        function: of a module that can be imported.
        args: can be pickled.
        nprocs: number of processes.
        first_rank: of this node, for the failures.
        grace_s: seconds for a rank to end by itself.
        unused: of ``torch.multiprocessing.spawn``.

    Raises:
        RanksFailedError: one of them ended with another status than 0; none of them is left.
    """
    from torch.multiprocessing import start_processes

    with ignored(signal.SIGINT):
        context = start_processes(
            function, tuple(args), nprocs, join=False, daemon=False, start_method="spawn"
        )
    processes: list[BaseProcess] = context.processes
    _RUNNING[:] = processes
    try:
        status = _wait_for_a_failure(processes)
        if status:
            _wait(processes, grace_s)  # for what the others have to say
        asked = end(processes, grace_s)
    except BaseException:  # a signal: ranks may save what they have
        end(processes, INTERRUPT_GRACE_S)
        raise
    finally:
        _RUNNING.clear()
    failures = [
        failure
        for i, process in enumerate(processes)
        if (failure := _failure(i + first_rank, process, context.error_files[i], i in asked))
    ]
    if failures:
        raise RanksFailedError(failures, status)


def end_running() -> None:
    """End the ranks that this process has started; for a signal's handler."""
    end(list(_RUNNING), INTERRUPT_GRACE_S)


def end(processes: Sequence[BaseProcess], grace_s: float = GRACE_S) -> set[int]:
    """End the processes that are alive, with SIGKILL after the grace; returns which were."""
    alive = {i for i, process in enumerate(processes) if process.is_alive()}
    for i in alive:
        processes[i].terminate()
    _wait(processes, grace_s)
    for process in processes:
        if process.is_alive():  # stopped, or inside a call that takes no signals
            process.kill()
        process.join()
    return alive


def _wait_for_a_failure(processes: Sequence[BaseProcess]) -> int:
    """Wait until one process has failed, or all have ended; returns its exit status, or 0."""
    waiting = {process.sentinel: process for process in processes}
    while waiting:
        for sentinel in connection.wait(list(waiting)):
            process = waiting.pop(sentinel)  # type: ignore[arg-type]
            process.join()
            if process.exitcode:
                return process.exitcode
    return 0


def _wait(processes: Sequence[BaseProcess], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))


def _failure(rank: int, process: BaseProcess, error_file: str, asked: bool) -> Failure | None:
    """How a process that has ended failed; None if it did not, or was asked to end."""
    code = process.exitcode or 0
    if code == 0:
        return None
    try:
        with open(error_file, "rb") as file:
            trace: str = pickle.load(file)  # written by torch's own start_processes
    except (OSError, EOFError):
        trace = ""
    _, found, report = trace.rpartition("RankError: ")
    if found:
        return Failure(**json.loads(report.strip().splitlines()[0]))
    if asked:
        return Failure(rank, f"rank {rank} was ended", is_cause=False)
    if code < 0:
        name = signal.Signals(-code).name
        hint = "; the system may have run out of memory" if name == "SIGKILL" else ""
        return Failure(rank, f"rank {rank} was ended by {name}{hint}")
    return Failure(rank, f"rank {rank} ended with exit status {code}", trace)
