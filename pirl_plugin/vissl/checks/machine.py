"""Refuse machines, folders and sizes that are not here, before anything is started."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pirl_plugin.utils.arguments import why_not_writable
from pirl_plugin.utils.console import put
from pirl_plugin.utils.our_configs import is_ours, num_micro_batches
from pirl_plugin.vissl.checks.loss_section import loss_section
from pirl_plugin.vissl.checks.refusal import refuse, refuse_tilde, shown

if TYPE_CHECKING:
    from vissl.config import AttrDict


def check_machine(config: AttrDict) -> None:
    """Refuse GPUs that are not here, and nodes that cannot find each other.

    Raises:
        SystemExit: what was found, what was expected and what to do.
    """
    import torch

    distributed = config.DISTRIBUTED
    wanted, found = distributed.NUM_PROC_PER_NODE, torch.cuda.device_count()
    if distributed.NUM_NODES > 1 and distributed.RUN_ID == "auto":
        refuse(
            f"config.DISTRIBUTED.RUN_ID = 'auto': expected HOST:PORT of the first of "
            f"{distributed.NUM_NODES} nodes; on each give config.DISTRIBUTED.RUN_ID=HOST:PORT and "
            f"node_id=0, 1, …; or let SLURM do it, config.SLURM.USE_SLURM=true; or take one node, "
            f"{_what_works_here(found)}"
        )
    if config.MACHINE.DEVICE == "gpu" and wanted > found:
        refuse(
            f"config.DISTRIBUTED.NUM_PROC_PER_NODE = {wanted} with config.MACHINE.DEVICE = 'gpu': "
            f"expected as many GPUs, found {found} here; {_what_works_here(found)}"
        )
    if is_ours(config) and config.MACHINE.DEVICE == "cpu" and config.MODEL.AMP_PARAMS.USE_AMP:
        refuse(
            "config.MODEL.AMP_PARAMS.USE_AMP = true with config.MACHINE.DEVICE = 'cpu': expected "
            "false, as the host's mixed precision is for GPUs; set it to false, or "
            "config.HOOKS.PIRL_INPUT.autocast=bfloat16 in its place"
        )
    if is_ours(config) and config.MACHINE.DEVICE == "cpu" and distributed.BACKEND == "nccl":
        refuse(
            "config.DISTRIBUTED.BACKEND = 'nccl' with config.MACHINE.DEVICE = 'cpu': expected "
            "gloo, as NCCL connects GPUs; set config.DISTRIBUTED.BACKEND=gloo, or add "
            "+config/pirl/machines=cpu"
        )


def _what_works_here(gpus: int) -> str:
    if gpus == 0:
        return "give +config/pirl/machines=cpu, in place of another overlay of machines"
    if gpus == 1:
        return "add +config/pirl/machines=1gpu"
    return f"add +config/pirl/machines=1node_8gpu config.DISTRIBUTED.NUM_PROC_PER_NODE={gpus}"


def check_folder(config: AttrDict) -> None:
    """Refuse a checkpoint folder that cannot be made or written to.

    Raises:
        SystemExit: what was found, what was expected and what to do.
    """
    if not is_ours(config) or "://" in (folder := config.CHECKPOINT.DIR):
        return
    refuse_tilde("config.CHECKPOINT.DIR", folder)
    reason = why_not_writable(Path(folder))
    if reason is not None:
        refuse(
            f"config.CHECKPOINT.DIR = {shown(folder)}: expected a folder to write to, and "
            f"{reason}; set config.CHECKPOINT.DIR=runs/NAME"
        )


def check_slurm(config: AttrDict) -> None:
    """Refuse a job that SLURM is not given enough for; say so where there is no SLURM.

    Raises:
        SystemExit: what was found, what was expected and what to do.
    """
    section = config.SLURM
    if not (is_ours(config) and section.USE_SLURM):
        return
    if not isinstance(section.PARTITION, str) or not section.PARTITION.strip():
        refuse(
            f"config.SLURM.PARTITION = {shown(section.PARTITION)}: expected the name of a "
            f"partition; set it to one that sinfo lists"
        )
    for key in ("TIME_HOURS", "MEM_GB", "NUM_CPU_PER_PROC"):
        value = section[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            refuse(
                f"config.SLURM.{key} = {shown(value)}: expected a number above 0; set it to one, "
                f"such as config.SLURM.{key}=8"
            )
    if shutil.which("srun") is None:  # by which submitit knows it
        put(
            "pirl_plugin: config.SLURM.USE_SLURM = true, and srun is not on the PATH: submitit "
            "runs the job on this machine, in the background, as the process it prints\n",
            sys.stderr,
        )


def check_draw_memory(config: AttrDict) -> None:
    """Refuse so many negatives that their draw, int64 ``(B, N)``, takes over half of the memory.

    The engines ``auto`` chooses keep less than that; ``plain`` keeps all of it.

    Raises:
        SystemExit: what was found, what was expected and what to do.
    """
    loss = loss_section(config)
    if loss is None:
        return
    batch = config.DATA.TRAIN.BATCHSIZE_PER_REPLICA // num_micro_batches(config)
    count = loss.num_negatives
    needed = 8 * count * (1 if loss.negatives == "per_batch" else batch)
    available = memory_of_device(config)
    if available and needed > available / 2:
        refuse(
            f"config.LOSS.pirl_loss.num_negatives = {count}: expected fewer, as the rows drawn for "
            f"{batch} images take {needed / 2**30:.1f} GiB of {available / 2**30:.1f} GiB; set "
            f"config.LOSS.pirl_loss.num_negatives=32000, the paper's"
        )


def check_scores(config: AttrDict) -> None:
    """Refuse the GPU's kernel for the scores on a CPU.

    Raises:
        SystemExit: what was found, what was expected and what to do.
    """
    loss = loss_section(config)
    if loss and loss.scores == "triton" and config.MACHINE.DEVICE == "cpu":
        refuse(
            "config.LOSS.pirl_loss.scores = 'triton' with config.MACHINE.DEVICE = 'cpu': expected "
            "auto, plain or blocked, as Triton compiles for GPUs; set "
            "config.LOSS.pirl_loss.scores=auto"
        )


def memory_of_device(config: AttrDict) -> int:
    """Bytes of memory of the first GPU, or of this machine; 0 where it is not known."""
    import torch

    if config.MACHINE.DEVICE == "gpu" and torch.cuda.is_available():
        return int(torch.cuda.get_device_properties(0).total_memory)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return 0
