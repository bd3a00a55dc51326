"""PIRL's loss, Eq. 5: λ · L_NCE(m_I, g(v_It)) + (1 − λ) · L_NCE(m_I, f(v_I))."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from classy_vision.losses import ClassyLoss
from torch import Tensor, distributed
from torch.nn.functional import normalize

from pirl_plugin.losses import functional
from pirl_plugin.losses.config import PIRLLossConfig
from pirl_plugin.memory import MemoryBank, bank_scores, draw_negatives

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class PIRLLoss(ClassyLoss):
    """The contrastive loss over a memory bank, for an image and its transformed version.

    The loss is the mean over the valid rows of all ranks. It keeps the bank, the partition constant
    Z and the number of steps, all of which are saved with the host's checkpoint; the bank is moved
    by :class:`~pirl_plugin.hooks.memory_bank_hook.MemoryBankHook`, not here.

    Attributes:
        bank: the :class:`~pirl_plugin.memory.MemoryBank`.
        norm_constant: Z, scalar float64; NaN until it is known. Used by the ``nce`` estimator.
        step: training steps done, which keys the draw of negatives.
    """

    norm_constant: Tensor

    def __init__(self, config: PIRLLossConfig) -> None:
        super().__init__()
        self.config = config
        self.step = 0
        self.bank = MemoryBank(
            config.num_train_samples,
            config.embedding_dim,
            momentum=config.bank.momentum,
            dtype=config.bank.dtype,
            seed=config.bank.seed,
        )
        constant = math.nan if config.norm_constant is None else float(config.norm_constant)
        self.register_buffer("norm_constant", torch.tensor(constant, dtype=torch.float64))
        self._norm_constant_known = config.norm_constant is not None

    @classmethod
    def from_config(cls, loss_config: Mapping[str, Any]) -> PIRLLoss:
        """Build the loss from the host's ``LOSS.pirl_loss`` section."""
        return cls(PIRLLossConfig.from_mapping(loss_config))

    def forward(
        self, output: Sequence[Tensor], target: Tensor, negatives: Tensor | None = None
    ) -> Tensor:
        """Eq. 5.

        Args:
            output: ``[g(v_It), f(v_I)]``, each ``(B, D)``; normalised here, in float32 or wider.
            target: ``(B,)`` int64, each image's row in the data set; −1 leaves a data point out.
            negatives: ``(B, N)`` int64, a given draw; by default the loss draws its own.

        Returns:
            The loss, a scalar. Without one valid row it is 0, with its graph intact.

        Raises:
            ValueError: embeddings of the wrong number or width, or a row outside the data set.
        """
        target = target.reshape(-1)
        self._check(output, target)
        weights = (self.config.lambda_invariance, 1 - self.config.lambda_invariance)
        terms = [i for i, weight in enumerate(weights) if weight > 0]
        valid = target >= 0
        rows = target.clamp(min=0)
        if negatives is None:
            negatives = self._draw(rows)
        with torch.autocast(device_type=target.device.type, enabled=False):
            queries = torch.stack([_unit(output[i]) for i in terms])  # (T, B, D)
            positive, others = bank_scores(
                queries, self.bank.rows, rows, negatives, self.config.temperature
            )
            per_row = self._estimate(positive, others, valid)  # (T, B)
            share = _share_of_all_ranks(valid)
            means = per_row.masked_fill(~valid, 0).sum(dim=1) * share  # (T,)
            loss = (means * means.new_tensor([weights[i] for i in terms])).sum()
            # A head that no term uses stays in the graph: DistributedDataParallel waits for it.
            for i in range(len(output)):
                if i not in terms:
                    loss = loss + 0 * output[i].float().sum()
            return loss

    def _estimate(self, positive: Tensor, negatives: Tensor, valid: Tensor) -> Tensor:
        """``(T, B)`` values of L_NCE from ``(T, B)`` and ``(T, B, N)`` scores."""
        pairs = zip(positive, negatives, strict=True)
        if self.config.estimator == "nce_softmax":
            return torch.stack([functional.nce_softmax(p, n) for p, n in pairs])
        if self.config.estimator == "info_nce":
            return torch.stack([functional.info_nce(p, n) for p, n in pairs])
        if not self._norm_constant_known:
            self._set_norm_constant(negatives, valid)
        num_rows = self.bank.rows.shape[0]
        return torch.stack([functional.nce(p, n, self.norm_constant, num_rows) for p, n in pairs])

    @torch.no_grad()
    def _set_norm_constant(self, negatives: Tensor, valid: Tensor) -> None:
        """Z = |D| · mean of exp(s/τ) over the negatives of the first batch, on all ranks.

        Wu et al. 2018, Sec. 3.2. The positive is no noise sample and stays out.
        """
        scores = negatives.double().masked_fill(~valid[None, :, None], -torch.inf)
        sums = torch.stack([scores.exp().sum(), valid.sum() * (scores[:, 0].numel() + 0.0)])
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(sums)
        if sums[1] == 0:
            self.norm_constant.fill_(self.bank.rows.shape[0])  # nothing valid yet: exp(0) each
            return
        self.norm_constant.copy_(self.bank.rows.shape[0] * sums[0] / sums[1])
        self._norm_constant_known = True

    def _draw(self, rows: Tensor) -> Tensor:
        config = self.config
        return draw_negatives(
            rows,
            self.bank.rows.shape[0],
            config.num_negatives,
            seed=config.bank.seed,
            step=self.step,
            replacement=config.replacement,
            per_batch=config.negatives == "per_batch",
        )

    def _check(self, output: Sequence[Tensor], target: Tensor) -> None:
        """Refuse embeddings and rows that do not fit the bank."""
        if isinstance(output, Tensor) or len(output) != 2:
            found = "one tensor" if isinstance(output, Tensor) else f"{len(output)} tensors"
            raise ValueError(
                f"pirl_loss got {found}: expected [g(v_It), f(v_I)]; set MODEL.MULTI_INPUT_HEAD_"
                f'MAPPING to [["patches", ["flatten"]], ["images", ["flatten"]]]'
            )
        num_rows, dim = self.bank.rows.shape
        for embedding in output:
            if embedding.shape != (target.numel(), dim):
                raise ValueError(
                    f"pirl_loss got embeddings of shape {tuple(embedding.shape)} for "
                    f"{target.numel()} images: expected ({target.numel()}, {dim}); make the head's "
                    f"out_dim and LOSS.pirl_loss.embedding_dim equal"
                )
        if target.device.type == "cpu" and target.numel() and int(target.max()) >= num_rows:
            raise ValueError(
                f"row {int(target.max())} is outside the memory bank of {num_rows} rows: the bank "
                f"was made for another data set; set LOSS.pirl_loss.num_train_samples to this one's"
            )

    def get_extra_state(self) -> dict[str, Any]:
        """What the checkpoint holds beside the tensors."""
        return {"step": self.step}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Continue the stream of negatives where the checkpoint left it."""
        self.step = int(state["step"])

    def load_state_dict(self, state: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load a checkpoint of the same data set.

        Raises:
            ValueError: the checkpoint's bank has another number of rows or another width.
        """
        found = tuple(state["bank.rows"].shape)
        expected = tuple(self.bank.rows.shape)
        if found != expected:
            raise ValueError(
                f"the checkpoint's memory bank is {found}, this run's is {expected} (images, "
                f"embedding_dim): it is of another data set or head; point config.DATA.TRAIN at "
                f"the same data, or start anew in another config.CHECKPOINT.DIR"
            )
        result = super().load_state_dict(state, *args, **kwargs)
        if self.config.norm_constant is not None:
            self.norm_constant.fill_(self.config.norm_constant)
        self._norm_constant_known = not bool(self.norm_constant.isnan())
        return result


def _unit(embedding: Tensor) -> Tensor:
    """Unit-norm rows, in float32 or wider."""
    return normalize(embedding.to(torch.promote_types(embedding.dtype, torch.float32)))


def _share_of_all_ranks(valid: Tensor) -> Tensor:
    """Weight that makes a sum over this rank's rows a mean over all ranks' valid rows.

    DistributedDataParallel averages gradients over W ranks, so each rank's sum counts W times.
    """
    count = valid.sum().float()
    world = 1
    if distributed.is_available() and distributed.is_initialized():
        world = distributed.get_world_size()
        distributed.all_reduce(count)
    return world / count.clamp(min=1)
