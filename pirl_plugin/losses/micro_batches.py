"""One batch's loss as a sum over its micro-batches: gradient accumulation.

The loss contrasts each image against rows of the bank and never against the batch, so that a
batch's loss is a sum over its images. What they share is all that is kept here: the number of valid
images of all ranks, the constant Z, and the draw of ``per_batch``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from pirl_plugin.distributed import sum_over_ranks, world_size
from pirl_plugin.losses.engines.choice import make_engine
from pirl_plugin.losses.estimators.nce import sum_of_exponentials
from pirl_plugin.losses.inputs import check_shapes, find_outside
from pirl_plugin.memory.checks import row_vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pirl_plugin.losses.config import PIRLLossConfig
    from pirl_plugin.losses.engines.base import ContrastBatch
    from pirl_plugin.memory import MemoryBank


class BatchLoss(Protocol):
    """What is asked of the loss, :class:`~pirl_plugin.losses.pirl_loss.PIRLLoss`."""

    config: PIRLLossConfig
    bank: MemoryBank

    @property
    def needs_norm_constant(self) -> bool:
        """Whether this step's batch sets or moves Z."""

    def contrast(self, outputs: Sequence[Tensor], rows: Tensor, valid: Tensor) -> ContrastBatch:
        """T outputs, each ``(B, D)``, of images ``(B,)``, with positives and this step's draw."""

    def move_norm_constant(self, sums: Tensor) -> None:
        """Set or move Z by the sums ``(2,)`` of this rank's batch. Collective."""


def share_of_all_ranks(valid: Tensor) -> Tensor:
    """Weight that makes a sum over this rank's rows a mean over all ranks' valid rows.

    DistributedDataParallel averages gradients over W ranks, so each rank's sum counts W times.
    """
    return world_size() / sum_over_ranks(valid.sum().float()).clamp(min=1)


class WholeBatch:
    """What the micro-batches of a batch share. Made by :meth:`PIRLLoss.micro_batches`.

    Making it is a collective.

    Args:
        loss: whose calls are of micro-batches while this lasts.
        target: ``(B,)`` int64, rows of this rank's images, of all its micro-batches.

    Attributes:
        rows: ``(B,)`` int64, the same with −1 for images that are left out.

    Raises:
        ValueError: rows of another type; on a CPU, a row is outside the data set.
    """

    def __init__(self, loss: BatchLoss, target: Tensor) -> None:
        self._loss, target = loss, row_vector("target", target)
        find_outside(target, None, loss.bank.num_rows)
        valid = (target >= 0) & (target < loss.bank.num_rows)
        self.rows = torch.where(valid, target, -1)
        self._share = share_of_all_ranks(valid)
        self._sorted = pad(target, (1, 0), value=-1).sort().values
        self._sums = torch.zeros(2, dtype=torch.float64, device=target.device)
        self._is_surveyed = False

    @property
    def needs_norm_constant(self) -> bool:
        """Whether Z is estimated from this batch, which takes :meth:`survey` of all of it first.

        It is in the first step of ``nce``, and with ``norm_constant_momentum`` below 1 in all. The
        same on all ranks.
        """
        return self._loss.needs_norm_constant

    def share_of(self, target: Tensor) -> Tensor:
        """Weight of an image in the mean over the valid images of all ranks, a scalar.

        Args:
            target: ``(B,)`` int64, a micro-batch's rows; NaN comes of one that the batch has not.

        Raises:
            ValueError: on a CPU, the batch has not that row; a GPU would have to be waited for.
        """
        return self._share.masked_fill(~self._has(target).all(), torch.nan)

    def _has(self, target: Tensor) -> Tensor:
        """Which rows are the batch's, or left out: ``(B,)`` bool."""
        index = torch.searchsorted(self._sorted, target).clamp(max=len(self._sorted) - 1)
        has = (self._sorted[index] == target) | (target < 0)
        if target.device.type == "cpu" and not has.all():
            raise ValueError(
                f"a micro-batch has row {int(target[~has][0])}: expected rows of the batch that "
                f"micro_batches() was given; give it those of all micro-batches"
            )
        return has

    def check_surveyed(self) -> None:
        """Refuse to score a micro-batch before Z is known.

        Raises:
            RuntimeError: Z is due and has not been set.
        """
        if self.needs_norm_constant and not self._is_surveyed:
            raise RuntimeError(
                "a micro-batch was scored before Z is known: expected survey(output, target) of "
                "all micro-batches and set_norm_constant() first; call them where "
                "needs_norm_constant says so"
            )

    @torch.no_grad()
    def survey(self, output: Tensor | Sequence[Tensor], target: Tensor) -> None:
        """Add a micro-batch to what Z is estimated from.

        Args:
            output: as of :meth:`PIRLLoss.forward`.
            target: likewise, this micro-batch's.

        Raises:
            ValueError: as :meth:`PIRLLoss.forward`; on a CPU, the batch has not one of the rows,
                which a GPU leaves out.
        """
        loss, target = self._loss, row_vector("target", target)
        outputs = [output] if isinstance(output, Tensor) else list(output)
        check_shapes(outputs, target, loss.bank.rows.shape[1])
        weights = loss.config.weights(len(outputs))
        used = [one for one, weight in zip(outputs, weights, strict=True) if weight > 0]
        valid = (target >= 0) & (target < loss.bank.num_rows) & self._has(target)
        with torch.autocast(device_type=target.device.type, enabled=False):
            batch = loss.contrast(used, torch.where(valid, target, 0), valid)
            engine = make_engine(loss.config.scores, batch)
            self._sums += sum_of_exponentials(engine.log_sums(), valid, batch.num_negatives)

    def set_norm_constant(self) -> None:
        """Estimate Z from the micro-batches surveyed, of all ranks. Collective."""
        self._is_surveyed = True
        self._loss.move_norm_constant(self._sums)
