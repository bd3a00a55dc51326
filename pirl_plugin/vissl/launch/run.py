"""One run of ours on this node: its folder's lock, its rendezvous, its ranks, and how it ended."""

from __future__ import annotations

import functools
import os
import signal
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pirl_plugin.utils.console import put
from pirl_plugin.utils.interrupts import STOPPING, Interrupted, outlive_terminal, raised
from pirl_plugin.utils.run_lock import FolderInUseError, RunLock
from pirl_plugin.vissl.hooks.run_settings import RunSettings
from pirl_plugin.vissl.launch import ranks
from pirl_plugin.vissl.launch.failures import (
    Failure,
    RankError,
    cause_of,
    describe,
    refuse,
    traceback_wanted,
    write_tracebacks,
)
from pirl_plugin.vissl.launch.newest import newest_checkpoint
from pirl_plugin.vissl.launch.rendezvous import rendezvous
from pirl_plugin.vissl.launch.waiting import passive_ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vissl.config import AttrDict

    Result = TypeVar("Result")

STARTED = "PIRL_PLUGIN_STARTED"  # a file that the launcher creates once a run's checks have passed
# Exit status of a run that would end the same way again: sysexits.h's "data format error".
WOULD_FAIL_AGAIN = 65


def run_ours(launch: Callable[[], Result], config: AttrDict, node_id: int) -> Result:
    """Call the host's launcher, and end in one sentence whatever ends it.

    Args:
        launch: the host's ``launch_distributed`` with its arguments.
        config: the host's configuration.
        node_id: of this node.

    Raises:
        SystemExit: the run was refused, was interrupted (status 130 for SIGINT) or failed.
    """
    try:
        settings = RunSettings.from_config(config)
    except ValueError as error:
        refuse(f"config.{error}", error)
    folder = run_folder(config)
    outlive_terminal()
    received = None
    try:
        with ExitStack() as stack:
            received = stack.enter_context(raised(signal.SIGINT))
            stack.enter_context(folder_lock(config, folder, node_id))
            stack.enter_context(rendezvous(config, node_id, settings.timeout_minutes))
            stack.enter_context(_our_spawn(config.DISTRIBUTED.NUM_PROC_PER_NODE * node_id))
            stack.enter_context(passive_ranks(config))
            if STARTED in os.environ:
                Path(os.environ[STARTED]).touch()
            return launch()
    except (Exception, Interrupted) as error:
        if received is not None and received.signum is not None:
            interrupted = Interrupted(received.signum)
            _say(f"{interrupted}: the run has ended; {resume_sentence(folder)}")
            raise SystemExit(interrupted.exit_status) from None
        _fail(_failures(error, settings.timeout_minutes), folder)


def _failures(error: BaseException, timeout_minutes: float) -> list[Failure]:
    """How the ranks of this node failed.

    Raises:
        SystemExit: they did not: they ended for a signal, with the status that says so.
    """
    if isinstance(error, ranks.RanksFailedError):
        for number in STOPPING:  # ranks that were asked to had saved, or not yet begun
            if error.exit_status == -number:
                _say(f"{number.name}: the run has ended; give the same command again to go on")
            if error.exit_status in (128 + number, -number):
                raise SystemExit(128 + number) from None
        return error.failures
    if isinstance(error, RankError):
        return [error.failure]
    return [describe(error, rank=0, timeout_minutes=timeout_minutes)]


def run_folder(config: AttrDict) -> Path:
    """The folder of a run's checkpoints and logs, which is created."""
    from vissl.utils.checkpoint import get_checkpoint_folder

    return Path(get_checkpoint_folder(config))


@contextmanager
def folder_lock(config: AttrDict, folder: Path, node_id: int) -> Iterator[None]:
    """Hold the run's folder on node 0; on the others, see that no other run does.

    Raises:
        SystemExit: another run holds it; names host, process and start.
    """
    identity, attempt = run_identity(config)
    lock = RunLock(folder, identity, node_id, attempt, on_lost=lambda: _end_at_once(folder))
    try:
        lock.__enter__()
    except FolderInUseError as error:
        raise SystemExit(
            f"pirl_plugin: config.CHECKPOINT.DIR = {folder}: expected a folder that no other run "
            f"writes to, and one does ({error.holder}); wait for it, stop it, or name another "
            f"folder"
        ) from None
    except OSError as error:
        raise SystemExit(
            f"pirl_plugin: config.CHECKPOINT.DIR = {folder}: expected a folder that can be written "
            f"to, and {error.strerror or error}; free some space, change its permissions, or name "
            f"another folder"
        ) from None
    try:
        yield
    finally:
        lock.__exit__()


def _end_at_once(folder: Path) -> None:
    """End this process and, with it, its ranks, without another write to the folder."""
    _say(f"config.CHECKPOINT.DIR = {folder}: another run has taken this folder over; this one ends")
    os._exit(1)


def run_identity(config: AttrDict) -> tuple[str | None, int]:
    """What the nodes of one run, and its requeued job, have in common; and the times requeued.

    None for a run of one node outside SLURM: it shares its folder with no other.
    """
    job = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID")
    if job:
        task = os.environ.get("SLURM_ARRAY_TASK_ID", "")
        return f"SLURM job {job} {task}".strip(), int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    if config.DISTRIBUTED.NUM_NODES > 1:
        return f"rendezvous {config.DISTRIBUTED.RUN_ID}", 0
    return None, 0


def resume_sentence(folder: Path) -> str:
    """Where the same command goes on."""
    newest = newest_checkpoint(folder)
    if newest is None:
        return f"there is no checkpoint in {folder}: the same command starts from the beginning"
    return f"the same command resumes from {newest.path}"


@contextmanager
def _our_spawn(first_rank: int) -> Iterator[None]:
    """Have the host start its ranks through :func:`pirl_plugin.vissl.launch.ranks.spawn`."""
    import torch.multiprocessing

    original = torch.multiprocessing.spawn
    torch.multiprocessing.spawn = functools.partial(ranks.spawn, first_rank=first_rank)
    try:
        yield
    finally:
        torch.multiprocessing.spawn = original


def _fail(failures: list[Failure], folder: Path) -> NoReturn:
    """End with the sentence of the failure that counts.

    Raises:
        SystemExit: always.
    """
    cause = cause_of(failures)
    file = write_tracebacks(failures, folder)
    if traceback_wanted():
        for failure in failures:
            put(f"{failure.traceback}\n", sys.stderr)
        _say(cause.sentence)
    else:
        _say(cause.sentence + (f" (traceback in {file})" if file and cause.unexpected else ""))
    raise SystemExit(WOULD_FAIL_AGAIN if cause.would_recur else 1) from None


def _say(sentence: str) -> None:
    put("")  # what was written before comes first
    put(f"pirl_plugin: {sentence}\n", sys.stderr)
