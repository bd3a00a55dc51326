"""How ranks find each other, with torchrun or without it, and whether they do the same."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.system.failures import Refused
from pirl_plugin.system.processes import GRACE_S
from pirl_plugin.vissl.sections import RECORD, num_ranks

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from vissl.config import AttrDict

# Numbers of processes, from Kubernetes and scripts, Open MPI, MPICH, and srun.
_NUMBERS_OF_PROCESSES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


def torchrun_local_rank() -> int | None:
    """Return this process's rank on its node; None if torchrun did not start it."""
    return int(os.environ["LOCAL_RANK"]) if "TORCHELASTIC_RUN_ID" in os.environ else None


def follow_torchrun(composed: DictConfig) -> None:
    """Under torchrun, put its nodes, processes and rendezvous into a complete configuration."""
    if torchrun_local_rank() is None:
        for name in _NUMBERS_OF_PROCESSES:
            number = os.environ.get(name, "1")
            # Any launcher may start one process on each node; others would each train alone.
            if number not in ("1", str(composed.config.DISTRIBUTED.NUM_NODES)):
                raise Refused(
                    f"{name} = {number}, but torchrun did not start this process. Start all "
                    f"processes with torchrun --nproc-per-node N -m pirl_plugin train …, or unset "
                    f"{name}."
                )
        return
    composed.node_id = int(os.environ["GROUP_RANK"])
    composed.config.DISTRIBUTED.update(
        NUM_NODES=int(os.environ["GROUP_WORLD_SIZE"]),
        NUM_PROC_PER_NODE=int(os.environ["LOCAL_WORLD_SIZE"]),
        INIT_METHOD="tcp",  # VISSL allows env only on one node; torch finds torchrun's store
        RUN_ID=f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
    )


def join_group(config: AttrDict, local_rank: int, rank: int, run_id: str, minutes: float) -> None:
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
    """Return torchrun's ``torch.distributed.Store``; on one node, for this attempt only.

    torchrun keeps one store for all attempts (pytorch issue 135712), so a rank could read an
    address from an earlier attempt. On several nodes, attempt numbers may differ.
    """
    from torch import distributed

    shared, _, _ = next(distributed.rendezvous("env://", timeout=timeout))
    shared.set_timeout(timeout)
    if os.environ["GROUP_WORLD_SIZE"] != "1":
        return shared
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    return distributed.PrefixStore(f"attempt_{attempt}", shared)


def compare_ranks(config: AttrDict, checkpoint: str | None) -> None:
    """Check that all ranks have the same configuration and checkpoint. Collective.

    Each node composes its configuration and looks for a checkpoint by itself.
    """
    from pirl_plugin.system.comparison import format_differences
    from pirl_plugin.system.ranks import gather_objects
    from pirl_plugin.vissl.resume.record import GLOBAL_BATCH, RESUMING, run_differences

    name = Path(checkpoint).name if checkpoint else "none"
    ranks = gather_objects((config[RECORD], name))
    first_record, first_name = ranks[0]
    free = [key for key in RESUMING if key != GLOBAL_BATCH]
    for number, (record, other_name) in enumerate(ranks):
        differs = run_differences(record, first_record, free)
        if other_name != first_name:
            differs["resumes from"] = (other_name, first_name)
        if differs:
            text = format_differences(differs, "{key} = {value} (on rank 0 {expected})")
            raise Refused(
                f"rank {number}: {text}. Run the same command on each node, with a shared folder "
                f"for config.CHECKPOINT.DIR."
            )
