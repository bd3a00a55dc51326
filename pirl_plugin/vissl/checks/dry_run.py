"""``pirl-plugin train … --dry-run``: check everything, time some steps, say what the run will take.

Nothing is written, and nothing is started but this process.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from pirl_plugin.checkpoints.initial_weights import follow_links
from pirl_plugin.checkpoints.run_folder import Keep
from pirl_plugin.memory.size import bank_bytes
from pirl_plugin.utils.console import counted, span
from pirl_plugin.utils.our_configs import is_ours, num_micro_batches
from pirl_plugin.utils.processes import usable_cores
from pirl_plugin.vissl.checks.before_launch import CHECKS, check_machine
from pirl_plugin.vissl.checks.images import num_images
from pirl_plugin.vissl.checks.loss_section import loss_section
from pirl_plugin.vissl.checks.refusal import refuse
from pirl_plugin.vissl.checks.timed_steps import Measured, measure

if TYPE_CHECKING:
    from vissl.config import AttrDict


def dry_run(config: AttrDict, node_id: int) -> None:
    """Print what a run will take.

    Args:
        config: the host's, inferred.
        node_id: of this node.

    Raises:
        SystemExit: whatever would refuse the run.
    """
    from pirl_plugin.vissl.launch.launcher import banner
    from pirl_plugin.vissl.launch.rendezvous import check_port
    from pirl_plugin.vissl.start_page import page_of_this_process, start_page

    if is_ours(config):
        page_of_this_process()
    if not config.SLURM.USE_SLURM:
        check_machine(config)
    check_port(config, node_id)
    if is_ours(config):
        follow_links(config)
    for check in CHECKS:
        check(config)
    print(start_page(config, banner()), flush=True)
    finished, newest = newest_of_run(config)
    if finished:
        print(f"dry run   everything checked; the run is finished: {newest}")
        return
    if newest:
        print(f"start     goes on from {newest}; the figures are of a whole run")
    images = num_images(config)
    if images is None or config.TEST_ONLY:
        print("dry run   everything checked; a run without training data of ours is not timed")
        return
    bank = bank_bytes_of(config, images)
    for line in forecast(config, images, bank, measure(config, images), free_bytes(config)):
        print(line)


def newest_of_run(config: AttrDict) -> tuple[bool, str | None]:
    """Whether the run is finished, and the checkpoint that its folder has; None for a new run.

    Raises:
        SystemExit: the run would not go on from it.
    """
    from vissl.utils.checkpoint import get_resume_checkpoint, is_training_finished

    folder = config.CHECKPOINT.DIR
    if not is_ours(config) or not Path(folder).is_dir():
        return False, None
    finished = bool(is_training_finished(config, folder))
    return finished, get_resume_checkpoint(config, folder)


def forecast(
    config: AttrDict, images: int, bank: int, measured: Measured, free: int | None
) -> list[str]:
    """The lines of the report.

    Args:
        config: the host's.
        images: |D|.
        bank: bytes of the memory bank on each rank.
        measured: on this machine.
        free: bytes that the disk of the run's folder has left; None where that is not known.

    Raises:
        SystemExit: the checkpoints need more than the disk has left.
    """
    machine, epochs = config.DISTRIBUTED, config.OPTIMIZER.num_epochs
    ranks = machine.NUM_NODES * machine.NUM_PROC_PER_NODE
    parts = num_micro_batches(config)
    # Of fewer images than a batch has, all are one.
    batch = min(config.DATA.TRAIN.BATCHSIZE_PER_REPLICA, math.ceil(images / ranks))
    steps = epochs * math.ceil(images / (ranks * batch))
    step, readers = _with_input(config, batch, measured)
    loss = loss_section(config)
    sharded = loss is not None and loss.bank.placement == "sharded"
    saved = measured.weights + measured.momentum + bank * (ranks if sharded else 1)
    keep = Keep(**(config.CHECKPOINT.get("PIRL") or {}))
    kept = keep.at_most(epochs, config.CHECKPOINT.CHECKPOINT_FREQUENCY)
    lines = [
        f"images    {images:,}; {counted(steps, 'step')} of {counted(ranks * batch, 'image')}",
        f"time      {span(steps * step)} in all, {1000 * step:,.0f} ms a step "
        f"({1000 * measured.step_s:,.0f} ms without input), as timed on this machine",
        f"input     {1000 * measured.input_s:.1f} ms an image; {readers}",
        f"memory    {_size(measured.memory)} measured here at {counted(batch // parts, 'image')}"
        + (f", one of {parts} micro-batches" if parts > 1 else "")
        + (f", {_size(bank)} of it or more for {images:,} rows of the bank" if bank else ""),
        f"disk      {_size(saved)} a checkpoint, up to {kept} kept: {_size(saved * kept)}"
        + (f" of {_size(free)} free" if free is not None else ""),
        "dry run   everything checked; nothing was written",
    ]
    if free is not None and saved * 2 > free:  # the one kept, and the one being written
        refuse(
            f"config.CHECKPOINT.DIR = '{config.CHECKPOINT.DIR}': expected room for two "
            f"checkpoints of {_size(saved)}, and {_size(free)} are free; name another folder"
        )
    return lines


def _with_input(config: AttrDict, batch: int, measured: Measured) -> tuple[float, str]:
    """Seconds of a step with its input, and what there is to say about the workers."""
    from pirl_plugin.vissl.patches.loading import reads_between_steps

    workers = config.DATA.NUM_DATALOADER_WORKERS
    alone = measured.input_s * batch
    if not workers or reads_between_steps(config):
        step = measured.step_s + alone / (workers + 1)
        return step, f"read before each step by the process and {counted(workers, 'worker')}"
    needed = math.ceil(alone / measured.step_s)
    step = max(measured.step_s, alone / workers)
    said = f"{needed} workers a process keep up, {workers} asked for"
    cores = max(1, usable_cores() // config.DISTRIBUTED.NUM_PROC_PER_NODE)
    if workers >= needed:
        return step, f"{said}: enough"
    if workers >= cores:
        return step, f"{said}: as many as this machine has cores for ({cores})"
    return step, f"{said}: set config.DATA.NUM_DATALOADER_WORKERS={min(needed, cores)}"


def bank_bytes_of(config: AttrDict, images: int) -> int:
    """Bytes of the memory bank on each rank; 0 without one."""
    loss, machine = loss_section(config), config.DISTRIBUTED
    if loss is None:
        return 0
    ranks = machine.NUM_NODES * machine.NUM_PROC_PER_NODE
    return bank_bytes(images, ranks, loss.bank.placement, loss.embedding_dim, loss.bank.dtype)


def free_bytes(config: AttrDict) -> int | None:
    """Bytes free where the checkpoints go; None of what is no local folder."""
    if "://" in config.CHECKPOINT.DIR:
        return None
    path = Path(config.CHECKPOINT.DIR).absolute()
    return shutil.disk_usage(next(p for p in (path, *path.parents) if p.exists())).free


def _size(number: float) -> str:
    """Bytes in words.

    Example:
        >>> _size(1500), _size(656e6), _size(25.6e9)
        ('1.5 kB', '656 MB', '25.6 GB')
        >>> _size(999_900_000)
        '1.0 GB'
    """
    for unit in ("B", "kB", "MB"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.1f} GB"
