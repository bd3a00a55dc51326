"""Start the ranks of a run, also for VISSL's own script, torchrun and SLURM.

For runs with this plugin, :func:`launch_distributed` replaces VISSL's launcher: it checks the
configuration, locks the run's folder, finds the checkpoint to resume from, starts the ranks, and
reports a failure in one sentence. VISSL's engine does the work on each rank.

Row *lost rank* of "How a command ends" (docs/architecture.md).
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from pirl_plugin.system.console import prepare_streams
from pirl_plugin.system.failures import PREFIX, in_one_sentence
from pirl_plugin.system.files import locked, naming_failures
from pirl_plugin.system.processes import GRACE_S, describe_exit, sharing_import_path
from pirl_plugin.system.watcher import (
    STOPPING,
    Interrupted,
    current,
    deferring,
    resumable,
    watching,
)
from pirl_plugin.vissl.run.group import torchrun_local_rank
from pirl_plugin.vissl.run.rank import Failure, run_rank
from pirl_plugin.vissl.sections import RECORD

if TYPE_CHECKING:
    from vissl.config import AttrDict


def launch_distributed(
    cfg: AttrDict,
    node_id: int,
    engine_name: str,
    hook_generator: Callable[[Any], Any],
    *,
    original: Callable[..., object],
) -> None:
    """Check a run, find where to resume it, and run this node's ranks.

    VISSL launches all runs without this plugin.

    Raises:
        SystemExit: the run failed, or ended on a signal.
    """
    if RECORD not in cfg:
        original(cfg, node_id, engine_name, hook_generator)
        return
    from vissl.utils import distributed_launcher as host

    from pirl_plugin.vissl.hooks.progress import show_start
    from pirl_plugin.vissl.repairs.transfers import link_checkpoint
    from pirl_plugin.vissl.resume.folder import begin_extraction, resume_point

    prepare_streams()
    # If log.txt is on a full disk, logging would print a traceback for each line.
    logging.raiseExceptions = False
    local_rank = torchrun_local_rank()  # before VISSL sets LOCAL_RANK
    if local_rank is None:
        node_id = host.get_node_id(node_id)
    is_first = node_id == 0 and not local_rank
    with contextlib.ExitStack() as stack:
        stack.enter_context(sharing_import_path())
        # End on a signal, or with one sentence on any error.
        stack.enter_context(watching())
        output = Path(cfg.CHECKPOINT.DIR)
        stack.enter_context(in_one_sentence(output))
        with naming_failures(output):  # VISSL would hide the reason
            output.mkdir(parents=True, exist_ok=True)
        folder = Path(host.get_checkpoint_folder(cfg))
        resumes = cfg.CHECKPOINT.AUTO_RESUME
        stack.enter_context(resumable(lambda: resumes and any(folder.glob("model_*.torch"))))
        lock = None
        if is_first:
            lock = stack.enter_context(locked(folder, "config.CHECKPOINT.DIR"))
            if engine_name == "extract_features":
                begin_extraction(cfg, folder)
        # Find the checkpoint to resume from.
        show_start(cfg, is_first)
        host.setup_logging(host.__name__)
        point = resume_point(cfg, folder)
        if not point.is_finished:
            checkpoint = None if point.path is None else str(point.path)
            if checkpoint:
                logging.info(f"Resume from file: {checkpoint}")
            work = (engine_name, checkpoint, str(folder), hook_generator)
            _run_ranks(cfg, node_id, local_rank, lock, work)
        elif is_first and point.path is not None:
            link_checkpoint(point.path)  # the run may have been killed before it did so


def _run_ranks(
    config: AttrDict,
    node_id: int,
    local_rank: int | None,
    lock: IO[str] | None,
    work: tuple[Any, ...],
) -> None:
    """Run this node's ranks in separate processes, or a single rank in this process.

    Args:
        config: VISSL's configuration.
        node_id: this node's number.
        local_rank: the rank that torchrun started here; None without torchrun.
        lock: the folder's lock; None on other nodes than the first.
        work: arguments for :func:`run_rank`, from ``engine_name`` to ``hook_generator``.
    """
    from vissl.utils import distributed_launcher as host

    section = config.DISTRIBUTED
    if section.NUM_NODES == 1:
        # By default, gloo looks up the machine's name, which may have no address.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # Linux's loopback interface
    host.set_env_vars(local_rank or 0, node_id, config)
    run_id = host.get_dist_run_id(config, section.NUM_NODES)
    arguments = (config, node_id, run_id, *work)
    host._copy_to_local(config)
    try:
        if local_rank is not None or section.NUM_PROC_PER_NODE == 1:
            run_rank(local_rank or 0, *arguments)
        else:
            _start_ranks(section.NUM_PROC_PER_NODE, node_id, lock, arguments)
    finally:
        host._cleanup_local_dir(config)
        os.environ.pop("WORLD_SIZE", None)  # which VISSL has set; a later run would see a launcher
    host.shutdown_logging()


def _start_ranks(
    number: int, node_id: int, lock: IO[str] | None, arguments: tuple[Any, ...]
) -> None:
    """Start ``number`` ranks, each in its own process that shares the lock, and wait for them.

    Raises:
        SystemExit: a rank failed; with the cause.
        Interrupted: the ranks ended on a signal.
    """
    from torch.multiprocessing import start_processes
    from torch.multiprocessing.spawn import ProcessExitedException

    # It would warn about each rank that it ends.
    logging.getLogger("torch.multiprocessing").setLevel(logging.ERROR)
    reader, writer = multiprocessing.Pipe(duplex=False)
    # A connection can be sent to a process: the rank gets the same open file.
    shared = None if lock is None else Connection(os.dup(lock.fileno()))
    try:
        with deferring():
            ranks = start_processes(
                run_rank, (*arguments, writer, shared), number, join=False, start_method="spawn"
            )
        writer.close()
        while not ranks.join(grace_period=GRACE_S):
            pass
    except ProcessExitedException as error:
        _end(error.exit_code, number * node_id + error.error_index, _received(reader))
    except BaseException:
        for process in multiprocessing.active_children():
            process.kill()
        raise


def _received(reader: Connection) -> list[Failure]:
    """Return the failures that ranks have sent, in order of time."""
    failures = []
    with contextlib.suppress(EOFError):
        while reader.poll():
            failures.append(reader.recv())
    return failures


def _end(exit_code: int, rank: int, failures: Sequence[Failure]) -> NoReturn:
    """End the launcher, with the reason that the ranks ended.

    Args:
        exit_code: exit status of the first rank that ended.
        rank: its number.
        failures: the ranks' failures.
    """
    for number in STOPPING:
        if exit_code == 128 + number:
            raise Interrupted(number) from None
    for failure in failures:
        if not failure.is_consequence:
            raise SystemExit(failure.sentence) from None
    # No rank failed by itself. After a signal, a rank may lose another one that has ended.
    if current().requested:
        raise Interrupted(current().requested) from None
    if failures and exit_code > 0:
        raise SystemExit(failures[0].sentence) from None
    raise SystemExit(f"{PREFIX}rank {rank} {describe_exit(exit_code)}") from None
