"""PIRL's loss, Eq. 5 of the paper, with its memory bank and state.

Settings are in :mod:`pirl_plugin.method.settings`, estimators of L_NCE in
:mod:`pirl_plugin.method.estimators`, scores in :mod:`pirl_plugin.method.scores`, the bank in
:mod:`pirl_plugin.method.bank`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pirl_plugin.method.bank import MemoryBank
from pirl_plugin.method.estimators import (
    ESTIMATORS,
    at_least_float32,
    uses_norm_constant,
)
from pirl_plugin.method.index_check import check_range
from pirl_plugin.method.negatives import draw_for_batch, draw_for_each
from pirl_plugin.method.scores import BankScores
from pirl_plugin.method.settings import BankConfig, PIRLLossConfig, pack_state, unpack_state
from pirl_plugin.method.sharded_bank import ShardedMemoryBank
from pirl_plugin.system.comparison import differences, format_differences
from pirl_plugin.system.console import warn
from pirl_plugin.system.failures import Refused, check, type_and_shape
from pirl_plugin.system.ranks import gather_objects, rank, sum_over_ranks, world_size

_BANKS: dict[str, type[MemoryBank]] = {"replicated": MemoryBank, "sharded": ShardedMemoryBank}
_MOST_NEGATIVES = 4096  # if N follows |D|
_STATE_BYTES = 1024  # for four numbers as text
_MANY_STEPS = 100  # before warning about a likely mistake in the training loop


class PIRLLoss(nn.Module):
    """Contrastive loss over a memory bank, for images and their transformed versions.

    Averaged over ranks, as ``DistributedDataParallel`` averages gradients, it is the mean over all
    valid images. ``state_dict`` includes the partition constant Z, the step and a replicated bank;
    ``bank.save`` saves a sharded bank. Call :meth:`update` after the optimizer's step. During
    evaluation (``torch.no_grad()``, ``loss.eval()``) the loss is 0, because test images have no row
    in the bank.

    Args:
        num_train_samples: |D|, the number of training images.
        estimator: estimator for L_NCE: ``nce`` (Wu et al. 2018), ``nce_softmax`` (Eq. 3 and 4 as
            printed), ``info_nce``, or a function as in :mod:`pirl_plugin.method.estimators`.
        lambda_invariance: λ in Eq. 5, the weight of the transformed term; 0 is NPID.
        temperature: τ, which divides all scores.
        num_negatives: N, negatives per image; None is half of |D|, at most 4,096.
        negatives: ``per_image``, or ``per_batch`` for one draw shared by the batch.
        replacement: whether a row may be drawn twice for an image.
        norm_constant: Z for ``nce`` (default: estimated from the first batch).
        norm_constant_momentum: m; below 1, each batch moves Z ← m·Z + (1 − m)·Z_batch.
        term_weights: one weight per output, the image last (default: from ``lambda_invariance``).
        embedding_dim: D, the embedding width.
        bank: memory bank settings, a :class:`~pirl_plugin.method.settings.BankConfig` or a
            mapping of its fields.

    Attributes:
        bank: the :class:`~pirl_plugin.method.bank.MemoryBank`, replicated or sharded.
        norm_constant: Z for the ``nce`` estimator, a float; None until known.
        step: number of training steps so far, a key for drawing negatives.
        seed: seed for the initial rows and the draw; None (same as 0) until known.
        images: a record of the images, as JSON, which is saved with the state.
        last_terms: unweighted L_NCE in the last step per output with a weight above 0, by name
            (``invariance``, ``image``). The mean over ranks is the mean over all valid images.

    Raises:
        ValueError: an argument has the wrong type or is out of range.
        TypeError: an argument is unknown.

    Example:
        >>> import torch
        >>> loss = PIRLLoss(num_train_samples=100, embedding_dim=8, num_negatives=16)
        >>> g, f = torch.randn(4, 8, requires_grad=True), torch.randn(4, 8, requires_grad=True)
        >>> index = torch.tensor([3, 14, 15, 92])  # image numbers in the data set
        >>> loss(f, g, index).backward()  # and the optimizer's step, then:
        >>> loss.update(index, f)
        >>> loss.step, int(loss.bank.visited.sum())
        (1, 4)
    """

    bank: MemoryBank

    def __init__(
        self,
        num_train_samples: int,
        *,
        estimator: str | Callable[..., Tensor] = "nce",
        lambda_invariance: float = 0.5,
        temperature: float = 0.07,
        num_negatives: int | None = 32000,
        negatives: Literal["per_image", "per_batch"] = "per_image",
        replacement: bool = True,
        norm_constant: float | None = None,
        norm_constant_momentum: float = 1.0,
        term_weights: list[float] | None = None,
        embedding_dim: int = 128,
        bank: BankConfig | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.config = config = PIRLLossConfig(
            num_train_samples=num_train_samples,
            estimator=estimator,
            lambda_invariance=lambda_invariance,
            temperature=temperature,
            num_negatives=num_negatives,
            negatives=negatives,
            replacement=replacement,
            norm_constant=norm_constant,
            norm_constant_momentum=norm_constant_momentum,
            term_weights=term_weights,
            embedding_dim=embedding_dim,
            bank=bank if isinstance(bank, BankConfig) else BankConfig(**(bank or {})),
        )
        self._function = estimator if callable(estimator) else ESTIMATORS[estimator]
        self._needs_norm_constant = uses_norm_constant(self._function)
        self.norm_constant = config.norm_constant
        self.seed = config.bank.seed
        self.step = 0
        self.images: dict[str, Any] = {}
        self.last_terms: dict[str, Tensor] = {}
        self._batches_since_update = 0
        self.resize(num_train_samples)
        # The paper has 2.5 %. Above 10 %, the noise term of nce is larger than the data term.
        many = max(0.1 * num_train_samples, 100)
        if config.estimator == "nce" and self.num_negatives > many and rank() == 0:
            warn(
                f"{self.num_negatives} negatives are too many for the estimator nce and "
                f"{num_train_samples} images. Use info_nce with a temperature such as 0.2, or "
                f"fewer negatives."
            )

    @property
    def num_negatives(self) -> int:
        """N, the number of negatives drawn per image."""
        if self.config.num_negatives is not None:
            return self.config.num_negatives
        return max(1, min(self.bank.num_rows // 2, _MOST_NEGATIVES))

    # torch.compile cannot trace the compiled draw, so it runs the loss eagerly.
    @torch._disable_dynamo
    def forward(
        self,
        f_image: Tensor,
        g_transformed: Tensor | Sequence[Tensor] | None,
        index: Tensor,
        negatives: Tensor | None = None,
    ) -> Tensor:
        """Compute Eq. 5.

        Args:
            f_image: ``(B, D)`` f(v_I), normalized here in float32 or wider.
            g_transformed: ``(B, D)`` g(v_It), or a list of them, or None if λ = 0 (NPID).
            index: ``(B,)`` int64, each image's number in the data set; −1 skips an image.
            negatives: ``(B, N)`` int64, image numbers with any N (default: drawn by the loss).
                Checking them synchronizes with a GPU.

        Returns:
            The loss, a scalar: this rank's share times the number of ranks. Without a valid index
            it is 0, with a graph; during evaluation it is 0, without one. It has only first
            derivatives: for ``create_graph``, its gradient is a constant.

        Raises:
            ValueError: an argument has the wrong type or shape; in the first step, the ranks have
                losses with different arguments; in training, an index is outside the data set. On
                a GPU, where this last check would synchronize, the loss is NaN.
        """
        # Shapes are checked during evaluation too, where the loss is 0.
        outputs = _by_name(f_image, g_transformed)  # each (B, D)
        # Eq. 5: λ, 1 − λ
        weight_of = dict(zip(outputs, self.config.weights(len(outputs)), strict=True))
        for name, output in outputs.items():
            argument = "f_image" if name == "image" else "g_transformed"
            index = self.bank.check_batch(index, output, argument)  # (B,)
        if not (self.training and torch.is_grad_enabled()):
            return at_least_float32(f_image.new_zeros(()))
        if not self.last_terms:  # the first step
            self._compare_ranks()
        if index.device.type == "cpu":
            check_range(index, self.bank.num_rows)

        used = [name for name in outputs if weight_of[name] > 0]  # T of them
        # The caller's autocast would compute the scores in half precision.
        with torch.autocast(device_type=index.device.type, enabled=False):
            outside = index != index.clamp(-1, self.bank.num_rows - 1)  # (B,)
            valid = (index >= 0) & ~outside  # (B,)
            invalid = ~valid[:, None]  # (B, 1)
            rows = torch.where(valid, index, 0)  # (B,)
            queries = torch.stack([outputs[name] for name in used], dim=1)
            # Invalid images become zeros, so they get no gradient: (B, T, D)
            queries = at_least_float32(queries).masked_fill(invalid[:, None], 0)
            queries = normalize(queries, dim=2)
            scores = self._scores(queries, rows, valid, negatives)
            estimator = self._function
            if self._needs_norm_constant:
                estimator = self._with_norm_constant(scores, valid)
            per_image = scores.estimate(estimator)  # L_NCE, (B, T)

            # DistributedDataParallel averages gradients over ranks. With the factor world_size,
            # this average is the mean over all valid images.
            num_valid = sum_over_ranks(valid.sum(dtype=torch.float32)).clamp(min=1)
            sums = per_image.masked_fill(invalid, 0).sum(dim=0)  # (T,)
            means = sums * (world_size() / num_valid)  # (T,)
            terms = dict(zip(used, means.unbind(), strict=True))
            loss = means.new_zeros(())
            for name, output in outputs.items():
                if name in terms:
                    loss = loss + weight_of[name] * terms[name]
                else:
                    # DistributedDataParallel waits for a gradient from every head, even an unused
                    # one. Zero times a non-finite output is NaN, so it also shows in the loss.
                    loss = loss + 0 * output.masked_fill(invalid, 0).float().sum()

        self.last_terms = dict(zip(used, means.detach().unbind(), strict=True))
        self._note_batch(len(index))
        return loss.masked_fill(outside.any(), torch.nan)

    @torch._disable_dynamo
    def update(self, index: Tensor, f_image: Tensor) -> None:
        """Gather f(v_I) from all ranks, move the bank and count the step. Collective.

        Args:
            index: ``(B,)`` int64, this rank's image numbers; −1 skips an image. With a replicated
                bank, no batch may be larger than the largest in the first step.
            f_image: ``(B, D)`` f(v_I); detached and normalized here. Non-finite ones are skipped.

        Raises:
            ValueError: an argument has the wrong type or shape, or on a CPU an index is outside the
                data set.
        """
        self.bank.update(index, f_image)
        self.step += 1
        self._batches_since_update = 0
        if self.step == _MANY_STEPS:
            self._warn_about_few_rows(len(index))

    def fill_bank(self, index: Tensor, f_image: Tensor) -> None:
        """Set rows to f(v_I) before training; arguments as in :meth:`update`. Collective."""
        self.bank.batch_size = None  # batches may be larger than before, or than in training
        self.bank.update(index, f_image, momentum=0.0)
        self.bank.batch_size = None

    def _scores(
        self, queries: Tensor, rows: Tensor, valid: Tensor, negatives: Tensor | None
    ) -> BankScores:
        """Return the scores for outputs ``(B, T, D)`` against own rows and negatives."""
        table = self.bank.rows
        if negatives is None:
            negatives = self._draw(rows, valid)  # (B, N)
        else:
            if negatives.dtype != torch.int64 or negatives.shape[:-1] != rows.shape:
                raise Refused(
                    f"negatives is {type_and_shape(negatives)}: expected int64 ({len(rows)}, N), "
                    f"image numbers"
                )
            check_range(negatives, self.bank.num_rows, lowest=0)
            if not self.bank.replicated:  # given rows may be in any shard
                table = self.bank.fetch(negatives.flatten())  # (B·N, D)
                negatives = torch.arange(len(table), device=table.device).view_as(negatives)
        positives = self.bank.fetch(rows)  # m_I, (B, D)
        return BankScores(queries, positives, table, negatives, self.config.temperature)

    def _draw(self, rows: Tensor, valid: Tensor) -> Tensor:
        """Draw ``(B, N)`` rows from this rank's part of the bank, never an image's own row."""
        config = self.config
        sizes = (len(self.bank.rows), self.num_negatives)
        keys = (self.seed or 0, self.step)
        if config.negatives == "per_batch":
            batch = self.bank.local_index(torch.where(valid, rows, -1))
            return draw_for_batch(batch, *sizes, *keys, config.replacement)
        return draw_for_each(rows, self.bank.local_index(rows), *sizes, *keys, config.replacement)

    def _with_norm_constant(self, scores: BankScores, valid: Tensor) -> Callable[..., Tensor]:
        """Estimate Z if needed, and return the estimator as a function of scores alone.

        Z is |D| times the mean of exp(s/τ) over the first batch's negatives, on all ranks (Wu et
        al. 2018, Sec. 3.2). With ``norm_constant_momentum`` below 1, later batches move Z. The
        positive is excluded: it is not a noise sample. Estimating synchronizes with a GPU.
        """
        num_rows = self.bank.num_rows
        z = self.norm_constant
        m = self.config.norm_constant_momentum
        if z is None or m != 1:
            # A single non-finite embedding would turn Z and all later losses into NaN.
            is_finite = scores.queries.isfinite().flatten(1).all(dim=1)
            total, number = sum_over_ranks(scores.sum_of_exponentials(valid & is_finite)).tolist()
            if number:
                estimate = num_rows * total / number
                self.norm_constant = estimate if z is None else m * z + (1 - m) * estimate
        # Z is unknown until a rank has a valid image. Until then, the loss is 0 for any Z.
        return partial(
            self._function, norm_constant=self.norm_constant or num_rows, num_rows=num_rows
        )

    # Mistakes that would silently change results

    def _compare_ranks(self) -> None:
        """Raise ``Refused`` on all ranks if their arguments or checkpoints differ. Collective."""
        settings = {**asdict(self.config), "step": self.step}
        settings["estimator"] = getattr(self._function, "__name__", None)
        of_ranks = gather_objects(settings)
        for number, of_rank in enumerate(of_ranks):
            if of_rank != of_ranks[0]:
                differs = differences(of_rank, of_ranks[0])
                text = format_differences(differs, "{key} = {value} (on rank 0 {expected})")
                raise Refused(
                    f"rank {number}: {text}. Create the loss with the same arguments and "
                    f"checkpoint on all ranks."
                )

    def _note_batch(self, size: int) -> None:
        """Warn once after more than an epoch, or many batches, without an update."""
        self._batches_since_update += 1
        batches_of_epoch = math.ceil(self.bank.num_rows / max(size * world_size(), 1))
        if self._batches_since_update == min(_MANY_STEPS, 1 + batches_of_epoch):
            warn(
                f"The memory bank was not updated in the last {self._batches_since_update} "
                f"batches. Call update() after each optimizer step."
            )

    def _warn_about_few_rows(self, batch: int) -> None:
        """Warn if the first steps visited few rows of the bank."""
        expected = min(_MANY_STEPS * batch, len(self.bank.rows))
        visited = int(self.bank.visited.sum())
        if visited < expected / 4 and rank() == 0:
            warn(
                f"{_MANY_STEPS} steps visited {visited} rows of the memory bank, not about "
                f"{expected}. Pass each image's number in the data set as index, not its class."
            )

    # State

    def resize(self, num_train_samples: int) -> None:
        """Create a new bank for ``num_train_samples`` images, on the same device."""
        check("num_train_samples", num_train_samples, num_train_samples >= 2, "at least 2")
        config = self.config
        device = self.bank.rows.device if hasattr(self, "bank") else "cpu"
        config.num_train_samples = num_train_samples
        self.norm_constant = config.norm_constant  # an estimate is proportional to |D|
        self.bank = _BANKS[config.bank.placement](
            num_train_samples,
            config.embedding_dim,
            momentum=config.bank.momentum,
            dtype=config.bank.dtype,
            seed=self.seed or 0,
        ).to(device)

    def get_extra_state(self) -> Tensor:
        """Return the checkpoint state other than the bank, packed; its length is fixed."""
        state = {
            "images": self.images,
            "step": self.step,
            "seed": self.seed or 0,
            "norm_constant": self.norm_constant,
            "temperature": self.config.temperature,
        }
        return pack_state(state, _STATE_BYTES + len(json.dumps(self.images)))

    def set_extra_state(self, packed: Tensor | Mapping[str, Any]) -> None:
        """Resume from a checkpoint's step, with the same sequence of negatives.

        Arguments take precedence over the checkpoint. Z is a mean of exp(s/τ), so it is estimated
        again if τ differs.
        """
        state = unpack_state(packed)
        config = self.config
        self.step = state["step"]
        if config.bank.seed is None:
            self.seed = state["seed"]
        estimated = config.norm_constant is None or config.norm_constant_momentum < 1
        if estimated and state["temperature"] == config.temperature:
            self.norm_constant = state["norm_constant"]
        if isinstance(self.bank, ShardedMemoryBank):
            self.bank.awaits_load = True  # even before the first step: rows may be embeddings


def _by_name(f_image: Tensor, g_transformed: Tensor | Sequence[Tensor] | None) -> dict[str, Tensor]:
    """Return outputs by term name, the image last."""
    if isinstance(g_transformed, Tensor):
        g_transformed = [g_transformed]
    transformed = list(g_transformed or [])
    outputs = {f"invariance_{t}": output for t, output in enumerate(transformed)}
    if len(transformed) == 1:
        outputs = {"invariance": transformed[0]}
    return {**outputs, "image": f_image}
