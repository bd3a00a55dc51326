"""Fill the memory bank, and update it after each optimizer step, identically on all ranks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

from pirl_plugin.system.console import Progress
from pirl_plugin.system.ranks import rank, sum_over_ranks, world_size
from pirl_plugin.system.text import counted
from pirl_plugin.vissl.adapters.method import image_and_transformed
from pirl_plugin.vissl.hooks.progress import shows_progress
from pirl_plugin.vissl.resume.exchange import SAVE, ExchangeHook
from pirl_plugin.vissl.resume.hook import active_scaler, stop
from pirl_plugin.vissl.task import QuietHook

if TYPE_CHECKING:
    from pirl_plugin.vissl.task import Task


_FEW_IMAGES = 300  # docs/guides/own_images.md


class MemoryBankHook(QuietHook):
    """Calls :meth:`PIRLLoss.update` in VISSL's training loop (Sec. 2.2).

    Args:
        exchange: hook that counts unreadable images, including while the bank is filled.
    """

    def __init__(self, exchange: ExchangeHook) -> None:
        super().__init__()
        self._exchange = exchange

    def on_start(self, task: Task) -> None:
        """Set the bank's seed, number of rows (one per training image) and batch size."""
        loss = task.loss
        num_rows = loss.bank.num_rows
        num_images = len(task.datasets["train"]) if "train" in task.datasets else num_rows
        if rank() == 0 and num_images < _FEW_IMAGES:
            logging.warning(
                f"{counted(num_images, 'training image')}: too few to learn features from. Use at "
                f"least {_FEW_IMAGES}, or published weights (pirl-plugin embed --timm resnet50 "
                f"--pretrained)."
            )
        seed_of_rows = loss.seed or 0  # None, if neither configuration nor checkpoint sets it, is 0
        if loss.seed is None:
            loss.seed = task.config["SEED_VALUE"]
        if num_images != num_rows or loss.seed != seed_of_rows:
            loss.resize(num_images)
        # A resumed run may begin with the last batch of an epoch, which is smaller.
        loss.bank.batch_size = task.config["DATA"]["TRAIN"]["BATCHSIZE_PER_REPLICA"]

    def on_phase_start(self, task: Task) -> None:
        """Fill a new bank if ``LOSS.pirl_loss.bank.init`` is ``embeddings``."""
        bank = task.loss.bank
        if task.train and task.loss.config.bank.init == "embeddings":
            if not sum_over_ranks(bank.visited.count_nonzero()):
                _fill(task, self._exchange)

    def on_update(self, task: Task) -> None:
        """Update the batch's rows, and count the step.

        Raises:
            ValueError: see :meth:`PIRLLoss.update`.
        """
        if task.train:
            f_image, _ = image_and_transformed(task.last_batch.model_output)
            task.loss.update(task.last_batch.sample["target"], f_image)


@torch.no_grad()
def _fill(task: Task, exchange: ExchangeHook) -> None:
    """Set each row to its image's embedding, in one pass over the training images.

    The network is in training mode: BatchNorm uses the statistics of each batch or micro-batch, as
    in training. Only the images, the last input, pass through it. Afterward, VISSL's loader
    restarts the epoch with the same views.

    Raises:
        Interrupted: a signal asked the run to end.
    """
    num_images = task.loss.bank.num_rows
    if rank() == 0:
        logging.info(f"PIRL: filling the memory bank, {num_images:,} rows")
    # VISSL's model computes each input in this list (multi_input_with_head_mapping_forward).
    heads = task.config["MODEL"]["MULTI_INPUT_HEAD_MAPPING"]
    progress = Progress("filling the memory bank", num_images, "stdout")
    is_shown = rank() == 0 and shows_progress()
    try:
        task.config["MODEL"]["MULTI_INPUT_HEAD_MAPPING"] = heads[-1:]
        for batch in task.data_iterator:
            exchange.exchange(task, batch)
            # This pass may take longer than a cluster waits, and there is nothing to save yet.
            if exchange.agreed > SAVE:
                stop(exchange.agreed, "while filling the memory bank; nothing was saved")
            (images,) = batch["images"]
            (index,) = batch["index"]
            # As in a step with VISSL's mixed precision.
            with torch.autocast("cuda", torch.float16, enabled=active_scaler(task) is not None):
                output = task.model({"images": images} if heads else images)
            f_image, _ = image_and_transformed(output)
            task.loss.fill_bank(index, f_image)
            if is_shown:  # for all ranks
                progress.update(len(index) * world_size())
    finally:
        progress.close()
        task.config["MODEL"]["MULTI_INPUT_HEAD_MAPPING"] = heads
    # The first step gets the first batch again.
    task.recreate_data_iterator(
        "train",
        epoch=task.phase_idx,
        compute_start_iter=False,
        train_phase_idx=task.train_phase_idx,
    )
