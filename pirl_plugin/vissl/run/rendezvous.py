"""How the ranks of a run meet through torchrun; other launchers of ranks are refused."""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING, Any

from pirl_plugin.system.failures import Refused

if TYPE_CHECKING:
    from omegaconf import DictConfig

# Of Kubernetes' operators and scripts, Open MPI, MPICH, and srun.
_NUMBERS_OF_PROCESSES = (
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "SLURM_STEP_NUM_TASKS",
)


def local_rank() -> int | None:
    """Return this process's rank on its node; None if torchrun did not start it."""
    return int(os.environ["LOCAL_RANK"]) if "TORCHELASTIC_RUN_ID" in os.environ else None


def follow_torchrun(composed: DictConfig) -> None:
    """If torchrun started this process, take nodes, processes and rendezvous from torchrun.

    Args:
        composed: the whole configuration, with ``node_id`` and ``config``; changed in place.

    Raises:
        Refused: another launcher than torchrun has started several processes.
    """
    if local_rank() is None:
        _refuse_other_launchers(int(composed.config.DISTRIBUTED.NUM_NODES))
        return
    variables = os.environ
    composed.node_id = int(variables["GROUP_RANK"])
    composed.config.DISTRIBUTED.update(
        NUM_NODES=int(variables["GROUP_WORLD_SIZE"]),
        NUM_PROC_PER_NODE=int(variables["LOCAL_WORLD_SIZE"]),
        INIT_METHOD="tcp",  # the host allows env only on one node; torch finds torchrun's store
        RUN_ID=f"{variables['MASTER_ADDR']}:{variables['MASTER_PORT']}",
    )


def _refuse_other_launchers(num_nodes: int) -> None:
    """Refuse processes that would each train alone, on all images.

    One process on each node is right: a user may start the nodes with any launcher.
    """
    variables = list(_NUMBERS_OF_PROCESSES)
    # A batch script is one process. It has the number of tasks that srun would start.
    if "SLURM_PROCID" in os.environ and os.environ.get("ENVIRONMENT") != "BATCH":
        variables.append("SLURM_NTASKS")
    for variable in variables:
        number = os.environ.get(variable, "1")
        if number not in ("1", str(num_nodes)):
            raise Refused(
                f"{variable} = {number}: expected processes that torchrun has started, because "
                f"each process would train alone; write torchrun --nproc-per-node N -m pirl_plugin "
                f"train …, or unset {variable}"
            )


def torchrun_store(timeout: datetime.timedelta) -> Any:
    """Return torchrun's store, ``torch.distributed.Store``; on one node, for this attempt only.

    torchrun keeps one store for all attempts (pytorch issue 135712). So a rank could read the
    address of a process of an earlier attempt. On several nodes, the attempt numbers may differ.

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
