"""One rank's work: join the other ranks, run VISSL's engine, report a failure.

The module ``launch``, or torchrun, starts the ranks on a node.

Rows *killed launcher* and *failed rank* of "How a command ends" (docs/architecture.md).
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pirl_plugin.system.console import prepare_streams
from pirl_plugin.system.failures import (
    PREFIX,
    Refused,
    details_of,
    is_refusal,
    record,
    sentence,
)
from pirl_plugin.system.loader import prepare_workers
from pirl_plugin.system.processes import GRACE_S
from pirl_plugin.system.waits import Limit
from pirl_plugin.system.watcher import current, watching
from pirl_plugin.vissl.host_config import key_of
from pirl_plugin.vissl.sections import (
    RECORD,
    TIMEOUT,
    RunSettings,
    num_ranks,
    read_section,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from omegaconf import DictConfig
    from vissl.config import AttrDict

# Numbers of processes, from Kubernetes and scripts, Open MPI, MPICH, and srun.
_NUMBERS_OF_PROCESSES = (
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "SLURM_STEP_NUM_TASKS",
)


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
        watcher = current()
        if watcher is not None:
            watcher.limit = Limit(minutes, TIMEOUT, Path(folder))
        try:
            prepare_run_workers(config)
            for engine in (train, extract_features):  # the environment may contain secrets
                engine.print_system_env_info = lambda variables: None
            # VISSL then uses this process group instead of making one.
            _join_group(config, local_rank, rank, run_id, minutes)
            if num_ranks(config) > 1:
                _compare_ranks(config, checkpoint)
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


def torchrun_local_rank() -> int | None:
    """Return this process's rank on its node; None if torchrun did not start it."""
    return int(os.environ["LOCAL_RANK"]) if "TORCHELASTIC_RUN_ID" in os.environ else None


def follow_torchrun(composed: DictConfig) -> None:
    """Use torchrun's nodes, processes and rendezvous, if torchrun started this process.

    Args:
        composed: the complete configuration, with ``node_id`` and ``config``; changed in place.

    Raises:
        Refused: another launcher started several processes, which would each train alone.
    """
    if torchrun_local_rank() is None:
        for name in _NUMBERS_OF_PROCESSES:
            number = os.environ.get(name, "1")
            # Any launcher may start one process on each node.
            if number not in ("1", str(composed.config.DISTRIBUTED.NUM_NODES)):
                raise Refused(
                    f"{name} = {number}, but torchrun did not start this process. Start all "
                    f"processes with torchrun --nproc-per-node N -m pirl_plugin train …, or unset "
                    f"{name}."
                )
        return
    variables = os.environ
    composed.node_id = int(variables["GROUP_RANK"])
    composed.config.DISTRIBUTED.update(
        NUM_NODES=int(variables["GROUP_WORLD_SIZE"]),
        NUM_PROC_PER_NODE=int(variables["LOCAL_WORLD_SIZE"]),
        INIT_METHOD="tcp",  # VISSL allows env only on one node; torch finds torchrun's store
        RUN_ID=f"{variables['MASTER_ADDR']}:{variables['MASTER_PORT']}",
    )


def _join_group(config: AttrDict, local_rank: int, rank: int, run_id: str, minutes: float) -> None:
    """Create torch's process group, which VISSL then uses; VISSL's own has no timeout."""
    import torch
    from torch import distributed

    if config.MACHINE.DEVICE == "gpu" and not torch.cuda.is_available():
        raise Refused(
            "torch finds no GPU. To train a small network on the CPU, add "
            "+config/pirl/machines=cpu_small; pirl-plugin configs lists other machines."
        )
    # A rank that waits for an image as long ends first, and names the image.
    timeout = datetime.timedelta(minutes=minutes, seconds=GRACE_S)
    section = config.DISTRIBUTED
    options: dict[str, Any] = {}
    if torchrun_local_rank() is not None:
        options["store"] = _torchrun_store(timeout)
    else:
        options["init_method"] = f"{section.INIT_METHOD}://{run_id}"
    if config.MACHINE.DEVICE == "gpu":
        torch.cuda.set_device(local_rank)
        # Otherwise a barrier would guess the device, and warn.
        options["device_id"] = torch.device("cuda", local_rank)
    distributed.init_process_group(
        section.BACKEND, world_size=num_ranks(config), rank=rank, timeout=timeout, **options
    )


def _torchrun_store(timeout: datetime.timedelta) -> Any:
    """Return torchrun's store, ``torch.distributed.Store``; on one node, for this attempt only.

    torchrun keeps one store for all attempts (pytorch issue 135712), so a rank could read an
    address from an earlier attempt. On several nodes, attempt numbers may differ.

    Args:
        timeout: how long a rank waits for a key.
    """
    from torch import distributed

    shared, _, _ = next(distributed.rendezvous("env://", timeout=timeout))
    shared.set_timeout(timeout)
    if os.environ["GROUP_WORLD_SIZE"] != "1":
        return shared
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    return distributed.PrefixStore(f"attempt_{attempt}", shared)


def _compare_ranks(config: AttrDict, checkpoint: str | None) -> None:
    """Check that all ranks have the same configuration and checkpoint. Collective.

    Each node composes its configuration and looks for a checkpoint by itself.

    Raises:
        Refused: two ranks differ; raised on all ranks.
    """
    from pirl_plugin.system.comparison import format_differences
    from pirl_plugin.system.ranks import gather_objects
    from pirl_plugin.vissl.resume.record import GLOBAL_BATCH, RESUMING, run_differences

    name = Path(checkpoint).name if checkpoint else "none"
    ranks = gather_objects(({RECORD: config[RECORD]}, name))
    first_config, first_name = ranks[0]
    free = [key for key in RESUMING if key != GLOBAL_BATCH]
    for number, (other_config, other_name) in enumerate(ranks):
        differing = None
        if other_config != first_config:
            differing = run_differences(other_config, first_config, free)
        if differing:
            text = format_differences(differing, "{key} = {value} (on rank 0 {expected})")
            raise Refused(f"rank {number}: {text}. Run the same command on each node.")
        if other_name != first_name:
            raise Refused(
                f"{config.CHECKPOINT.DIR} is not the same folder on all nodes: rank 0 resumes from "
                f"{first_name}, and rank {number} from {other_name}. Use a shared folder."
            )
