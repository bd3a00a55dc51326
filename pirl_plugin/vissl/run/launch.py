"""Start the ranks of a run, also for VISSL's own script, torchrun and SLURM, and do their work.

For runs with this plugin, :func:`launch_distributed` replaces VISSL's launcher: it checks the
configuration, locks the run's folder, finds the checkpoint to resume from, starts the ranks, and
reports a failure in one sentence. VISSL's engine does the work on each rank.

Rows *killed launcher*, *failed rank* and *lost rank* of "How a command ends"
(docs/architecture.md).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn

from pirl_plugin.system import failures, watcher
from pirl_plugin.system.console import prepare_streams
from pirl_plugin.system.files import locked, naming_failures
from pirl_plugin.system.loader import prepare_workers
from pirl_plugin.system.processes import GRACE_S, describe_exit, sharing_import_path
from pirl_plugin.system.waits import Waits
from pirl_plugin.vissl.host_config import key_of
from pirl_plugin.vissl.run.group import compare_ranks, join_group, torchrun_local_rank
from pirl_plugin.vissl.sections import RECORD, TIMEOUT, RunSettings, num_ranks, read_section

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from vissl.config import AttrDict


class Work(NamedTuple):
    """The ranks' work: the arguments of VISSL's ``_distributed_worker`` after the local rank."""

    config: AttrDict
    node_id: int
    run_id: str  # the first rank's address
    engine_name: str
    checkpoint: str | None  # to resume from
    folder: str
    hook_generator: Callable[[Any], Any]


class Failure(NamedTuple):
    """A rank's failure, which a spawned rank sends to its launcher."""

    sentence: str
    is_consequence: bool = False  # another rank ended first


def launch_distributed(
    cfg: AttrDict,
    node_id: int,
    engine_name: str,
    hook_generator: Callable[[Any], Any],
    *,
    original: Callable[..., object],
) -> None:
    """Check a run, find where to resume it, and run this node's ranks, or leave it to VISSL."""
    if RECORD not in cfg:
        original(cfg, node_id, engine_name, hook_generator)
        return
    from vissl.utils import distributed_launcher as host

    from pirl_plugin.vissl.hooks.progress import show_start
    from pirl_plugin.vissl.repairs.transfers import link_checkpoint
    from pirl_plugin.vissl.resume.folder import begin_extraction, resume_point

    prepare_streams()
    local_rank = torchrun_local_rank()  # before VISSL sets LOCAL_RANK
    if local_rank is None:
        node_id = host.get_node_id(node_id)
    is_first = node_id == 0 and not local_rank
    with contextlib.ExitStack() as stack:
        stack.enter_context(sharing_import_path())
        stack.enter_context(watcher.watching())
        output = Path(cfg.CHECKPOINT.DIR)
        stack.enter_context(failures.in_one_sentence(output))
        with naming_failures(output):  # VISSL would hide the reason
            output.mkdir(parents=True, exist_ok=True)
        folder = Path(host.get_checkpoint_folder(cfg))
        resumes = cfg.CHECKPOINT.AUTO_RESUME
        checkpoints = "model_*.torch"
        stack.enter_context(watcher.resumable(lambda: resumes and any(folder.glob(checkpoints))))
        lock = None
        if is_first:
            lock = stack.enter_context(locked(folder, "config.CHECKPOINT.DIR"))
            if engine_name == "extract_features":
                begin_extraction(cfg, folder)
        # Find the checkpoint to resume from.
        show_start(cfg, is_first)
        host.setup_logging(host.__name__)
        point = resume_point(cfg, folder)
        if point.is_finished:
            if is_first and point.path is not None:
                link_checkpoint(point.path)  # the run may have been killed before it did so
            return
        if point.path is not None:
            logging.info(f"Resume from file: {point.path}")
        # Run this node's ranks in separate processes, or a single rank in this process.
        if cfg.DISTRIBUTED.NUM_NODES == 1:
            # By default, gloo looks up the machine's name, which may have no address.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # Linux's loopback interface
        host.set_env_vars(local_rank or 0, node_id, cfg)
        stack.callback(os.environ.pop, "WORLD_SIZE", None)  # a later run would see a launcher
        host._copy_to_local(cfg)
        stack.callback(host._cleanup_local_dir, cfg)
        run_id = host.get_dist_run_id(cfg, cfg.DISTRIBUTED.NUM_NODES)
        checkpoint = None if point.path is None else str(point.path)
        work = Work(cfg, node_id, run_id, engine_name, checkpoint, str(folder), hook_generator)
        if local_rank is not None or cfg.DISTRIBUTED.NUM_PROC_PER_NODE == 1:
            _run_rank(local_rank or 0, work)
        else:
            _start_ranks(work, lock)
        host.shutdown_logging()


def _start_ranks(work: Work, lock: IO[str] | None) -> None:
    """Start ranks, each in its own process that shares the lock, and wait for them."""
    from torch.multiprocessing import start_processes
    from torch.multiprocessing.spawn import ProcessExitedException

    # It would warn about each rank that it ends.
    logging.getLogger("torch.multiprocessing").setLevel(logging.ERROR)
    number = work.config.DISTRIBUTED.NUM_PROC_PER_NODE
    reader, writer = multiprocessing.Pipe(duplex=False)
    # A connection can be sent to a process: the rank gets the same open file.
    shared = None if lock is None else Connection(os.dup(lock.fileno()))
    try:
        with watcher.deferring():
            ranks = start_processes(
                _run_rank, (work, writer, shared), number, join=False, start_method="spawn"
            )
        writer.close()
        while not ranks.join(grace_period=GRACE_S):
            pass
    except ProcessExitedException as error:
        _end(error.exit_code, number * work.node_id + error.error_index, reader)
    except BaseException:
        for process in multiprocessing.active_children():
            process.kill()
        raise


def _end(exit_code: int, rank: int, reader: Connection) -> NoReturn:
    """End the launcher, with the reason that the ranks ended.

    ``exit_code`` is of the rank that ended first; ``reader`` has failures in order of time.
    """
    failed: list[Failure] = []
    with contextlib.suppress(EOFError):
        while reader.poll():
            failed.append(reader.recv())
    if exit_code - 128 in watcher.STOPPING:
        raise watcher.Interrupted(exit_code - 128) from None
    for failure in failed:
        if not failure.is_consequence:
            raise SystemExit(failure.sentence) from None
    # No rank failed by itself. After a signal, a rank may lose another one that has ended.
    if requested := watcher.current().requested:
        raise watcher.Interrupted(requested) from None
    if failed and exit_code > 0:
        raise SystemExit(failed[0].sentence) from None
    raise SystemExit(f"{failures.PREFIX}rank {rank} {describe_exit(exit_code)}") from None


def _run_rank(
    local_rank: int,
    work: Work,
    launcher: Connection | None = None,
    lock: Connection | None = None,
) -> None:
    """Do VISSL's work for one rank; on failure, write ``failure.txt`` and exit.

    In a spawned process, unpickling this function imports this package before VISSL.

    Args:
        local_rank: the process's number on its node.
        work: the ranks' work.
        launcher: where a spawned rank sends its :class:`Failure`; None: this process prints it.
        lock: the launcher's lock of the folder, which a spawned rank keeps open: if the launcher is
            killed, no second run starts while the rank may still write.
    """
    prepare_streams()
    from torch import distributed
    from vissl.engines import extract_features, train
    from vissl.utils import distributed_launcher as host

    from pirl_plugin.system.ranks import has_lost_rank
    from pirl_plugin.vissl.run.pirl_task import hooks_of_run  # the module registers our task

    config = work.config
    folder = Path(work.folder)
    minutes = read_section(RunSettings, config, "HOOKS.PIRL_RUN").timeout_minutes
    rank = config.DISTRIBUTED.NUM_PROC_PER_NODE * work.node_id + local_rank
    with contextlib.ExitStack() as stack:
        if launcher is not None:
            stack.enter_context(watcher.watching(lambda text: _send(launcher, Failure(text))))
        watcher.current().waits = Waits(minutes, TIMEOUT)
        watcher.current().folder = folder
        try:
            prepare_run_workers(config)
            for engine in (train, extract_features):  # the environment may contain secrets
                engine.print_system_env_info = lambda variables: None
            # VISSL then uses this process group instead of making one.
            join_group(config, local_rank, rank, work.run_id, minutes)
            if num_ranks(config) > 1:
                compare_ranks(config, work.checkpoint)
            hooks = functools.partial(hooks_of_run, work.hook_generator)
            host._distributed_worker(local_rank, *work._replace(hook_generator=hooks))
            if distributed.is_initialized():
                distributed.destroy_process_group()  # gloo's threads could abort the exit
        except Exception as error:
            is_consequence = has_lost_rank(error)
            text = failures.sentence(error, key_of)
            if is_consequence:
                text = (
                    f"another rank ended, or did not respond for {minutes:g} minutes ({TIMEOUT}). "
                    f"Look for the error on that rank, then start again."
                )
            if not failures.is_refusal(error) and num_ranks(config) > 1:
                text = f"rank {rank}: {text}"
            text = f"{failures.PREFIX}{text}"
            text = failures.record(text, failures.details_of(error), folder)
            if launcher is None:
                raise SystemExit(text) from None
            _send(launcher, Failure(text, is_consequence))
            raise SystemExit(1) from None


def _send(launcher: Connection, failure: Failure) -> None:
    with contextlib.suppress(OSError):  # it has ended
        launcher.send(failure)


def prepare_run_workers(config: DictConfig | AttrDict) -> None:
    """Start the server that forks loader workers, unless it is already running."""
    prepare_workers("pirl_plugin.vissl.run.preload", config.DATA.NUM_DATALOADER_WORKERS)
