"""PIRL's loss, Eq. 5: λ · L_NCE(m_I, g(v_It)) + (1 − λ) · L_NCE(m_I, f(v_I))."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pirl_plugin.bases import ClassyLoss
from pirl_plugin.losses.checkpoint import LossCheckpoint
from pirl_plugin.losses.config import PIRLLossConfig
from pirl_plugin.losses.contrast import Contrast, make_contrast
from pirl_plugin.memory import Draw, MemoryBank, ShardedMemoryBank
from pirl_plugin.memory.collectives import sum_over_ranks, world_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class PIRLLoss(LossCheckpoint, ClassyLoss):
    """The contrastive loss over a memory bank, for an image and its transformed version.

    The loss is the mean over the valid rows of all ranks. It keeps the bank, the partition constant
    Z and the number of steps, all of which are saved with the host's checkpoint; the bank is moved
    by :class:`~pirl_plugin.hooks.memory_bank_hook.MemoryBankHook`, not here.

    Attributes:
        bank: the :class:`~pirl_plugin.memory.MemoryBank`, replicated or sharded.
        norm_constant: Z, scalar float64; NaN until it is known. Used by the ``nce`` estimator.
        step: training steps done, which keys the draw of negatives.
        last_move: what :meth:`MemoryBank.update` returned last.
        terms: L_NCE of each output in the last batch, unweighted, by name; the mean over ranks is
            the mean over all valid rows. Terms of weight 0 are not computed and not there.
    """

    norm_constant: Tensor

    def __init__(self, config: PIRLLossConfig) -> None:
        super().__init__()
        self.config = config
        self.step = 0
        self.terms: dict[str, Tensor] = {}
        self.bank = make_bank(config)
        self.last_move = torch.zeros(2)
        constant = math.nan if config.norm_constant is None else float(config.norm_constant)
        self.register_buffer("norm_constant", torch.tensor(constant, dtype=torch.float64))
        self.norm_constant_known = config.norm_constant is not None

    @classmethod
    def from_config(cls, loss_config: Mapping[str, Any]) -> PIRLLoss:
        """Build the loss from the host's ``LOSS.pirl_loss`` section."""
        return cls(PIRLLossConfig.from_mapping(loss_config))

    def resize(self, num_train_samples: int) -> None:
        """Make the bank anew, for a data set of ``num_train_samples`` images."""
        self.config.num_train_samples = num_train_samples
        self.bank = make_bank(self.config)

    def forward(
        self, output: Tensor | Sequence[Tensor], target: Tensor, negatives: Tensor | None = None
    ) -> Tensor:
        """Eq. 5.

        Args:
            output: ``[g(v_It), f(v_I)]``, each ``(B, D)``, or a longer list that ends with f(v_I),
                or f(v_I) alone where λ = 0; normalised here, in float32 or wider.
            target: ``(B,)`` int64, each image's row in the data set; −1 leaves a data point out,
                and so does, in a test phase, a row that the training set does not have.
            negatives: ``(B, N)`` int64, a given draw; by default the loss draws its own.

        Returns:
            The loss, a scalar. Without one valid row it is 0, with its graph intact.

        Raises:
            ValueError: embeddings of the wrong number or width, or, in training, a row outside the
                data set. A GPU is not asked for the latter: the loss is NaN, and the memory bank's
                hook says why.
        """
        target = target.reshape(-1)
        output = [output] if isinstance(output, Tensor) else output
        self._check(output, target)
        weights = self.config.weights(len(output))
        used = [i for i, weight in enumerate(weights) if weight > 0]
        valid = (target >= 0) & (target < self.bank.num_rows)
        rows = torch.where(valid, target, 0)
        draw: Draw | Tensor
        if negatives is None:
            table, draw = self.bank.rows, self._draw(rows)
        else:
            table, draw = self.bank.locate(negatives)
        with torch.autocast(device_type=target.device.type, enabled=False):
            # Invalid rows are blanked before they are scored: no gradient comes from them.
            queries = torch.stack([_unit(output[i], valid) for i in used])  # (T, B, D)
            contrast = make_contrast(
                self.config.scores, queries, self.bank.own(rows), table, draw,
                self.config.temperature,
            )  # fmt: skip
            per_row = self._estimate(contrast, valid)  # (T, B)
            means = per_row.masked_fill(~valid, 0).sum(dim=1) * _share_of_all_ranks(valid)  # (T,)
            self.terms = dict(zip(_names(len(output), used), means.detach(), strict=True))
            loss = torch.stack([weights[i] * means[t] for t, i in enumerate(used)]).sum()
            # A head that no term uses stays in the graph: DistributedDataParallel waits for it.
            for i in range(len(output)):
                if i not in used:
                    loss = loss + 0 * output[i].masked_fill(~valid[:, None], 0).float().sum()
            if torch.is_grad_enabled():  # in a test phase, rows outside the bank are left out
                loss = loss.masked_fill((target >= self.bank.num_rows).any(), torch.nan)
            return loss

    def _estimate(self, contrast: Contrast, valid: Tensor) -> Tensor:
        """``(T, B)`` values of L_NCE."""
        if self.config.estimator != "nce":
            return contrast.loss(self.config.estimator)
        # The host puts models into evaluation mode, never losses: test phases have no gradients.
        moving = torch.is_grad_enabled() and self.config.norm_constant_momentum < 1
        if moving or not self.norm_constant_known:
            self._move_norm_constant(contrast.log_sums(), valid)
        num_rows = self.bank.num_rows
        # Still unknown where no rank had a valid row: any constant does for a loss of 0.
        return contrast.loss("nce", self.norm_constant.nan_to_num(num_rows), num_rows)

    @torch.no_grad()
    def _move_norm_constant(self, log_sums: Tensor, valid: Tensor) -> None:
        """Z = |D| · mean of exp(s/τ) over the negatives of the first batch, on all ranks.

        Wu et al. 2018, Sec. 3.2. The positive is no noise sample and stays out. With
        ``norm_constant_momentum`` below 1, later batches move Z.

        Args:
            log_sums: ``(T, B)``, log Σ exp(s/τ) over a data point's negatives.
            valid: ``(B,)`` bool.
        """
        sums = log_sums.double().exp().masked_fill(~valid, 0).sum()
        number = valid.sum().double() * (len(log_sums) * self.config.num_negatives)
        total = sum_over_ranks(torch.stack([sums, number]))
        estimate = self.bank.num_rows * total[0] / total[1]  # NaN without a valid row on any rank
        if self.norm_constant_known:
            estimate = torch.lerp(estimate, self.norm_constant, self.config.norm_constant_momentum)
        self.norm_constant.copy_(torch.where(total[1] > 0, estimate, self.norm_constant))
        if not self.norm_constant_known:
            self.norm_constant_known = bool(total[1] > 0)  # waits for the GPU, in the first step

    def _draw(self, rows: Tensor) -> Draw:
        config = self.config
        return self.bank.draw(
            rows,
            config.num_negatives,
            seed=config.bank.seed,
            step=self.step,
            replacement=config.replacement,
            per_batch=config.negatives == "per_batch",
        )

    def _check(self, output: Sequence[Tensor], target: Tensor) -> None:
        """Refuse embeddings and rows that do not fit the bank."""
        num_rows, dim = self.bank.num_rows, self.bank.rows.shape[1]
        for embedding in output:
            if embedding.shape != (target.numel(), dim):
                raise ValueError(
                    f"pirl_loss got embeddings of shape {tuple(embedding.shape)} for "
                    f"{target.numel()} images: expected ({target.numel()}, {dim}); make the head's "
                    f"out_dim and LOSS.pirl_loss.embedding_dim equal"
                )
        in_training = torch.is_grad_enabled() and target.device.type == "cpu"
        if in_training and target.numel() and int(target.max()) >= num_rows:
            raise ValueError(
                f"row {int(target.max())} is outside the memory bank of {num_rows} rows: the bank "
                f"was made for another data set; set LOSS.pirl_loss.num_train_samples to this one's"
            )


def make_bank(config: PIRLLossConfig) -> MemoryBank:
    """The bank that ``LOSS.pirl_loss`` describes.

    Raises:
        ValueError: there are too few rows for it, or for negatives without replacement.
    """
    kind = {"replicated": MemoryBank, "sharded": ShardedMemoryBank}[config.bank.placement]
    bank = kind(
        config.num_train_samples,
        config.embedding_dim,
        momentum=config.bank.momentum,
        dtype=config.bank.dtype,
        seed=config.bank.seed,
    )
    if isinstance(bank, ShardedMemoryBank) and not config.replacement:
        if config.num_negatives >= bank.smallest_shard:
            raise ValueError(
                f"LOSS.pirl_loss.num_negatives = {config.num_negatives} without replacement: the "
                f"smallest shard has {bank.smallest_shard} rows, so at most "
                f"{bank.smallest_shard - 1} negatives; lower it, or set replacement: true"
            )
    return bank


def _names(num_outputs: int, used: Sequence[int]) -> list[str]:
    """Names of the terms: ``image`` for the last, ``invariance`` for a transformed version."""
    several = num_outputs > 2
    invariance = [f"invariance_{i}" if several else "invariance" for i in range(num_outputs - 1)]
    return [[*invariance, "image"][i] for i in used]


def _unit(embedding: Tensor, valid: Tensor) -> Tensor:
    """Unit-norm rows, in float32 or wider; zeros where they are not valid."""
    embedding = embedding.masked_fill(~valid[:, None], 0)
    return normalize(embedding.to(torch.promote_types(embedding.dtype, torch.float32)))


def _share_of_all_ranks(valid: Tensor) -> Tensor:
    """Weight that makes a sum over this rank's rows a mean over all ranks' valid rows.

    DistributedDataParallel averages gradients over W ranks, so each rank's sum counts W times.
    """
    return world_size() / sum_over_ranks(valid.sum().float()).clamp(min=1)
