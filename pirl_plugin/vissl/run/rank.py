"""One rank's work: join the other ranks, run VISSL's engine, report a failure.

The module ``launch``, or torchrun, starts the ranks on a node.

Rows *killed launcher* and *failed rank* of "How a command ends" (docs/architecture.md).
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pirl_plugin.system.console import prepare_streams
from pirl_plugin.system.failures import (
    PREFIX,
    details_of,
    is_refusal,
    record,
    sentence,
)
from pirl_plugin.system.loader import prepare_workers
from pirl_plugin.system.waits import Limit
from pirl_plugin.system.watcher import current, watching
from pirl_plugin.vissl.host_config import key_of
from pirl_plugin.vissl.run.group import compare_ranks, join_group
from pirl_plugin.vissl.sections import (
    TIMEOUT,
    RunSettings,
    num_ranks,
    read_section,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from omegaconf import DictConfig
    from vissl.config import AttrDict


class Failure(NamedTuple):
    """A rank's failure, which a spawned rank sends to its launcher.

    Attributes:
        sentence: the sentence for the console.
        is_consequence: whether another rank ended first.
    """

    sentence: str
    is_consequence: bool


def run_rank(
    local_rank: int,
    config: AttrDict,
    node_id: int,
    run_id: str,
    engine_name: str,
    checkpoint: str | None,
    folder: str,
    hook_generator: Callable[[Any], Any],
    launcher: Connection | None = None,
    lock: Connection | None = None,
) -> None:
    """Do VISSL's work for one rank; on failure, write ``failure.txt`` and exit.

    The arguments are those of VISSL's ``_distributed_worker``. In a spawned process, unpickling
    this function imports this package before VISSL.

    Args:
        local_rank: the process's number on its node.
        config: VISSL's configuration.
        node_id: the node's number.
        run_id: the first rank's address, chosen by VISSL.
        engine_name: ``train`` or ``extract_features``.
        checkpoint: checkpoint to resume from on this node; None for a new run.
        folder: the run's folder.
        hook_generator: returns VISSL's hooks for a configuration.
        launcher: where a spawned rank sends its :class:`Failure`; None: this process prints it.
        lock: the launcher's lock of the folder. A spawned rank keeps it open, so if the launcher is
            killed, no second run starts while the rank may still write.

    Raises:
        SystemExit: the work failed.
    """
    prepare_streams()
    logging.raiseExceptions = False  # as in the launcher
    from torch import distributed
    from vissl.engines import extract_features, train
    from vissl.utils import distributed_launcher as host

    from pirl_plugin.system.ranks import has_lost_rank
    from pirl_plugin.vissl.run.pirl_task import hooks_of_run  # the module registers our task

    minutes = read_section(RunSettings, config, "HOOKS.PIRL_RUN").timeout_minutes
    rank = config.DISTRIBUTED.NUM_PROC_PER_NODE * node_id + local_rank
    with contextlib.ExitStack() as stack:
        if launcher is not None:
            stack.enter_context(watching(functools.partial(_send, launcher)))
        current().limit = Limit(minutes, TIMEOUT, Path(folder))
        try:
            prepare_run_workers(config)
            for engine in (train, extract_features):  # the environment may contain secrets
                engine.print_system_env_info = lambda variables: None
            # VISSL then uses this process group instead of making one.
            join_group(config, local_rank, rank, run_id, minutes)
            if num_ranks(config) > 1:
                compare_ranks(config, checkpoint)
            host._distributed_worker(
                local_rank,
                config,
                node_id,
                run_id,
                engine_name,
                checkpoint,
                folder,
                functools.partial(hooks_of_run, hook_generator),
            )
            if distributed.is_initialized():
                distributed.destroy_process_group()  # gloo's threads could abort the exit
        except Exception as error:
            is_consequence = has_lost_rank(error)
            text = sentence(error, key_of)
            if is_consequence:
                text = (
                    f"another rank ended, or did not respond for {minutes:g} minutes ({TIMEOUT}). "
                    f"Look for the error on that rank, then start again."
                )
            if not is_refusal(error) and num_ranks(config) > 1:
                text = f"rank {rank}: {text}"
            text = f"{PREFIX}{text}"
            text = record(text, details_of(error), Path(folder)) or text
            if launcher is None:
                raise SystemExit(text) from None
            _send(launcher, text, is_consequence)
            raise SystemExit(1) from None


def _send(launcher: Connection, sentence: str, is_consequence: bool = False) -> None:
    with contextlib.suppress(OSError):  # it has ended
        launcher.send(Failure(sentence, is_consequence))


def prepare_run_workers(config: DictConfig | AttrDict) -> None:
    """Start the server that forks loader workers, unless it is already running."""
    workers = config.DATA.NUM_DATALOADER_WORKERS
    prepare_workers("pirl_plugin.vissl.run.preload", 1 if workers is None else workers)
