"""PIRL's loss, Eq. 5 of the paper, with its settings, its memory bank and its state.

The estimators of L_NCE are in :mod:`pirl_plugin.estimators`, the scores in
:mod:`pirl_plugin.scores`, the bank in :mod:`pirl_plugin.bank`.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pirl_plugin.bank import DTYPES, MemoryBank
from pirl_plugin.distributed import rank, sum_over_ranks, world_size
from pirl_plugin.estimators import ESTIMATORS, at_least_float32, uses_norm_constant
from pirl_plugin.failures import Refused
from pirl_plugin.negatives import draw_negatives
from pirl_plugin.scores import Contrast
from pirl_plugin.sharded_bank import ShardedMemoryBank

_BANKS: dict[str, type[MemoryBank]] = {"replicated": MemoryBank, "sharded": ShardedMemoryBank}
_MANY_STEPS = 100  # then a probable mistake in the training loop is logged


@dataclass
class BankConfig:
    """``LOSS.pirl_loss.bank``: see :class:`pirl_plugin.bank.MemoryBank`."""

    momentum: float = 0.5  # m of row ← normalise(m·row + (1 − m)·f(v_I))
    placement: str = "replicated"  # or sharded: each rank holds 1/W of the rows
    dtype: str = "float32"  # type of the rows; or bfloat16, float16
    init: str = "random"  # or embeddings: a pass before training writes f(v_I) into the rows
    seed: int | None = None  # None: the host's SEED_VALUE, and 0 without a host

    def __post_init__(self) -> None:
        _check("bank.momentum", self.momentum, 0 <= self.momentum < 1, "a weight in [0, 1)")
        _check_name("bank.placement", self.placement, _BANKS)
        _check_name("bank.dtype", self.dtype, DTYPES)
        _check_name("bank.init", self.init, ("random", "embeddings"))


@dataclass
class PIRLLossConfig:
    """``LOSS.pirl_loss``, with the paper's values as defaults.

    Raises:
        ValueError: the loss cannot use a value.
    """

    num_train_samples: int = -1  # |D|, the number of images; −1: the host fills it in
    estimator: str = "nce"  # nce, nce_softmax or info_nce
    lambda_invariance: float = 0.5  # λ, weight of the transformed version; 0 is NPID
    temperature: float = 0.07  # τ
    num_negatives: int = 32000  # N, for each image
    negatives: str = "per_image"  # or per_batch: one draw that the batch shares
    replacement: bool = True  # whether a row may be drawn twice for an image
    norm_constant: float | None = None  # Z; None: estimated from the first batch
    norm_constant_momentum: float = 1.0  # m; below 1: Z ← m·Z + (1 − m)·(Z of this batch)
    term_weights: list[float] | None = None  # one for each output; None: from lambda_invariance
    embedding_dim: int = 128  # width of the embeddings
    bank: BankConfig = field(default_factory=BankConfig)

    def __post_init__(self) -> None:
        if not isinstance(self.bank, BankConfig):
            self.bank = BankConfig(**self.bank)
        images, z, weights = self.num_train_samples, self.norm_constant, self.term_weights
        _check("num_train_samples", images, images == -1 or images >= 2, "at least 2 images")
        _check_name("estimator", self.estimator, ESTIMATORS)
        _check_name("negatives", self.negatives, ("per_image", "per_batch"))
        for key in ("lambda_invariance", "norm_constant_momentum"):
            _check(key, value := getattr(self, key), 0 <= value <= 1, "a weight in [0, 1]")
        # Below 1/709, exp(1/τ) overflows in float64.
        _check("temperature", self.temperature, self.temperature >= 1.5e-3, "at least 0.0015")
        _check("num_negatives", self.num_negatives, self.num_negatives >= 1, "at least 1")
        _check("norm_constant", z, z is None or 0 < z < math.inf, "a number above 0, or null")
        fit = weights is None or (min(weights, default=-1) >= 0 and sum(weights) > 0)
        _check("term_weights", weights, fit, "weights of at least 0, one of them above")

    def weights(self, num_outputs: int) -> list[float]:
        """Return the weight of each output's term: Eq. 5, or ``term_weights``.

        Several transformed versions share λ equally. The image is last and has 1 − λ.

        Raises:
            ValueError: the number of ``term_weights`` is another, or there is no transformed
                version and λ is not 0.
        """
        given, weight, transformed = self.term_weights, self.lambda_invariance, num_outputs - 1
        if given is not None:
            fits = len(given) == num_outputs
            _check("term_weights", given, fits, f"{num_outputs} weights, one for each output")
            return list(given)
        if transformed == 0:
            _check("lambda_invariance", weight, weight == 0, "0 (NPID) without g(v_It)")
            return [1.0]
        return [weight / transformed] * transformed + [1 - weight]


def _check(key: str, value: object, fits: bool, expected: str) -> None:
    if not fits:
        raise Refused(f"LOSS.pirl_loss.{key} = {value!r}: expected {expected}; set it to that")


def _check_name(key: str, value: str, names: Sequence[str] | Mapping[str, object]) -> None:
    _check(key, value, value in names, f"one of {', '.join(names)}")


@dataclass
class LastStep:
    """The values of the last training step, for reports.

    Attributes:
        terms: unweighted L_NCE of each output with a weight above 0, by name (``invariance``,
            ``image``). The mean over ranks is the mean over all valid images.
        moved: ``(2,)``, the result of :meth:`pirl_plugin.bank.MemoryBank.move`.
        queries: the outputs with unit norm, by the names of ``terms``: ``(B, D)``, without a graph.
        positives: ``(B, D)``, the images' rows m_I of the bank before the update.
        valid: ``(B,)`` bool; queries and positives of other images have no meaning.
    """

    terms: dict[str, Tensor] = field(default_factory=dict)
    moved: Tensor = field(default_factory=lambda: torch.zeros(2))
    queries: dict[str, Tensor] = field(default_factory=dict)
    positives: Tensor = field(default_factory=lambda: torch.zeros(0))
    valid: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))


class PIRLLoss(nn.Module):
    """The contrastive loss over a memory bank, for an image and its transformed version.

    Its average over the ranks, as ``DistributedDataParallel`` averages gradients, is the mean over
    all valid images. The ``state_dict`` has the partition constant Z, the number of steps and a
    replicated bank; ``bank.save`` saves a sharded bank. Call :meth:`update` after the optimiser's
    step. In a test phase (``torch.no_grad()``, ``loss.eval()``) the loss is 0: test images have no
    row in the bank.

    Args:
        num_train_samples: |D|, the number of training images.
        **settings: the other fields of :class:`PIRLLossConfig`, such as ``estimator``,
            ``lambda_invariance``, ``temperature``, ``num_negatives`` and ``bank``, a mapping with
            fields of :class:`BankConfig`.

    Attributes:
        bank: the :class:`~pirl_plugin.bank.MemoryBank`, replicated or sharded.
        norm_constant: Z, a float; None until it is known. The ``nce`` estimator uses it.
        step: number of training steps so far, a key of the draw of negatives.
        seed: seed of the bank's initial rows and of the draw; None (same as 0) until it is known.
        last_step: the values of the last step, for reports.

    Raises:
        ValueError: a value cannot be used; the message names its key.

    Example:
        >>> import torch
        >>> loss = PIRLLoss(num_train_samples=100, embedding_dim=8, num_negatives=16)
        >>> g, f = torch.randn(4, 8, requires_grad=True), torch.randn(4, 8, requires_grad=True)
        >>> index = torch.tensor([3, 14, 15, 92])  # of the images in the data set
        >>> loss(f, g, index).backward()  # and the optimiser's step, then:
        >>> loss.update(index, f)
        >>> loss.step, int(loss.bank.visited.sum())
        (1, 4)
    """

    bank: MemoryBank

    def __init__(self, num_train_samples: int, **settings: Any) -> None:
        super().__init__()
        self.config = config = PIRLLossConfig(num_train_samples, **settings)
        self.norm_constant, self.seed, self.step = config.norm_constant, config.bank.seed, 0
        self.last_step = LastStep()
        self._batches = 0  # since the bank was last updated
        self.resize(num_train_samples)
        # The paper has 2.5 %. Above 10 %, the noise term of nce is larger than the data term.
        most = max(0.1 * num_train_samples, 100)
        if config.estimator == "nce" and config.num_negatives > most and rank() == 0:
            logging.root.warning(
                f"LOSS.pirl_loss.estimator = nce with {config.num_negatives} negatives of "
                f"{num_train_samples} images: take info_nce, with a temperature such as 0.2, or "
                f"fewer negatives"
            )

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
            f_image: ``(B, D)`` f(v_I), normalised here, in float32 or wider.
            g_transformed: ``(B, D)`` g(v_It), or a list of them, or None where λ = 0 (NPID).
            index: ``(B,)`` int64, each image's row in the data set; −1 leaves an image out.
            negatives: ``(B, N)`` int64, a given draw with any N; by default the loss draws itself.

        Returns:
            The loss, a scalar: this rank's share, times the number of ranks. Without a valid row
            it is 0, with a graph. In a test phase it is 0, without a graph.

        Raises:
            ValueError: the embeddings have another shape; in training on a CPU, an index is
                outside the data set. On a GPU, the loss is then NaN: this saves a synchronisation.
        """
        transformed = [g_transformed] if isinstance(g_transformed, Tensor) else g_transformed or []
        outputs = [*transformed, f_image]  # each B×D
        weights = self.config.weights(len(outputs))  # Eq. 5: λ, 1 − λ
        for output in outputs:
            index = self.bank.check_batch(index, output)  # B
        if not (self.training and torch.is_grad_enabled()):
            return at_least_float32(f_image.new_zeros(()))
        self.bank.check_inside(index.masked_fill(index == -1, 0))
        several = len(transformed) > 1
        names = [f"invariance_{t}" if several else "invariance" for t in range(len(transformed))]
        terms = {
            name: (weight, output)
            for name, weight, output in zip([*names, "image"], weights, outputs, strict=True)
            if weight > 0
        }  # T of them
        with torch.autocast(device_type=index.device.type, enabled=False):
            valid = (index >= 0) & (index < self.bank.num_rows)  # B
            # Invalid images have zeros, so they get no gradient: T×B×D
            queries = torch.stack([_unit_rows(f, valid) for _, f in terms.values()])
            contrast = self._contrast(queries, index, valid, negatives)
            if uses_norm_constant(self.config.estimator):
                self._estimate_norm_constant(contrast, valid)
            per_image = contrast.estimate(self._estimator())  # L_NCE: T×B
            # DistributedDataParallel averages the ranks' gradients. With the factor world_size,
            # this average is the mean over the valid images of all ranks.
            images = sum_over_ranks(valid.sum().float()).clamp(min=1)
            means = torch.where(valid, per_image, 0).sum(dim=1) * (world_size() / images)  # T
            loss = torch.stack([w * m for (w, _), m in zip(terms.values(), means, strict=True)])
            loss = loss.sum()
            # DistributedDataParallel waits for a gradient of every head, also of an unused one.
            for weight, output in zip(weights, outputs, strict=True):
                if weight == 0:
                    loss = loss + 0 * output.masked_fill(~valid[:, None], 0).float().sum()
        self._record(list(terms), means.detach(), contrast, valid)
        return loss.masked_fill((index >= self.bank.num_rows).any(), torch.nan)

    @torch._disable_dynamo
    def update(self, index: Tensor, f_image: Tensor) -> None:
        """Gather f(v_I) from all ranks, move the bank and count the step. Collective.

        Args:
            index: ``(B,)`` int64, rows of this rank's images in the data set; −1 leaves one out.
                With a replicated bank, B is the same on all ranks.
            f_image: ``(B, D)`` f(v_I); detached and normalised here.

        Raises:
            FloatingPointError: on a CPU, an embedding is not finite; the bank does not change.
            ValueError: the embeddings have another shape; on a CPU, an index is outside the data
                set, or the ranks have different B.
        """
        self.last_step.moved = self.bank.update(index, f_image)
        self.step, self._batches = self.step + 1, 0
        if self.step == _MANY_STEPS:
            seen = min(_MANY_STEPS * len(index), len(self.bank.rows))
            visited = int(self.bank.visited.sum())
            if visited < seen / 4 and rank() == 0:
                logging.root.warning(
                    f"PIRLLoss: {_MANY_STEPS} steps visited {visited} rows of the memory bank: "
                    f"expected about {seen}; give each image's number in the data set as index, "
                    f"not its class"
                )

    def fill_bank(self, index: Tensor, f_image: Tensor) -> None:
        """Set the images' rows to f(v_I), before training: see :meth:`update`. Collective."""
        self.bank.update(index, f_image, momentum=0.0)

    def _contrast(
        self, queries: Tensor, index: Tensor, valid: Tensor, negatives: Tensor | None
    ) -> Contrast:
        """Return T outputs ``(T, B, D)`` with their images' own rows and drawn rows."""
        table, rows, config = self.bank.rows, torch.where(valid, index, 0), self.config
        if negatives is None:
            per_batch = config.negatives == "per_batch"
            itself = torch.where(valid, index, -1) if per_batch else rows
            negatives = draw_negatives(
                rows,
                len(table),
                config.num_negatives,
                self.seed or 0,
                self.step,
                replacement=config.replacement,
                per_batch=per_batch,
                exclude=self.bank.local_index(itself),
            )
        elif not self.bank.persistent:  # a given draw may lie in any shard
            table = self.bank.lookup(negatives.flatten())
            negatives = torch.arange(len(table), device=table.device).view_as(negatives)
        positives = self.bank.lookup(rows)  # m_I: B×D
        return Contrast(queries, positives, table, negatives, config.temperature)

    def _estimator(self) -> Callable[..., Tensor]:
        estimator, rows = ESTIMATORS[self.config.estimator], self.bank.num_rows
        if not uses_norm_constant(self.config.estimator):
            return estimator
        # Z is unknown until a rank has a valid image. Until then the loss is 0 for any Z.
        z = self.norm_constant or rows
        return functools.partial(estimator, norm_constant=z, num_rows=rows)

    def _estimate_norm_constant(self, contrast: Contrast, valid: Tensor) -> None:
        """Set Z to |D| · mean of exp(s/τ) over the negatives of the first batch, on all ranks.

        As in Wu et al. 2018, Sec. 3.2. With ``norm_constant_momentum`` below 1, later batches move
        Z. The positive is not a noise sample and is left out. This waits for a GPU.
        """
        before, m = self.norm_constant, self.config.norm_constant_momentum
        if before is None or m < 1:
            total, number = sum_over_ranks(contrast.sum_of_exponentials(valid)).tolist()
            if number:
                estimate = self.bank.num_rows * total / number
                self.norm_constant = estimate if before is None else m * before + (1 - m) * estimate

    def _record(self, names: list[str], means: Tensor, contrast: Contrast, valid: Tensor) -> None:
        self.last_step = LastStep(
            terms=dict(zip(names, means, strict=True)),
            moved=self.last_step.moved,
            queries=dict(zip(names, contrast.queries.detach(), strict=True)),
            positives=contrast.positives,
            valid=valid,
        )
        self._batches += 1
        if self._batches == _MANY_STEPS:
            logging.root.warning(
                f"PIRLLoss was given {_MANY_STEPS} batches since its memory bank was last updated: "
                f"call loss.update(index, f_image) after each step of the optimiser"
            )

    # State

    def resize(self, num_train_samples: int) -> None:
        """Make a new bank, for a data set of ``num_train_samples`` images, on the same device."""
        config, device = self.config, self.bank.rows.device if hasattr(self, "bank") else "cpu"
        config.num_train_samples = num_train_samples
        self.bank = _BANKS[config.bank.placement](
            num_train_samples,
            config.embedding_dim,
            momentum=config.bank.momentum,
            dtype=config.bank.dtype,
            seed=self.seed or 0,
        ).to(device)

    def resolve_seed(self, seed: int) -> None:
        """Take ``seed`` if neither the configuration nor a checkpoint has a seed."""
        if self.seed is None:
            self.seed = seed
            if seed:
                self.resize(self.bank.num_rows)

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state that a checkpoint holds beside the bank."""
        return {
            "step": self.step,
            "seed": self.seed or 0,
            "norm_constant": self.norm_constant,
            "temperature": self.config.temperature,
            "placement": self.config.bank.placement,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint's step, with its stream of negatives.

        The configuration has priority over the checkpoint. Z is a mean of exp(s/τ), so another τ
        needs another Z: it is estimated again.

        Raises:
            ValueError: the checkpoint's bank is sharded and this run's replicated, or vice versa;
                or its Z is not positive.
        """
        config, found = self.config, state["placement"]
        fits = config.bank.placement == found
        _check("bank.placement", config.bank.placement, fits, f"{found}, as in the checkpoint")
        self.step = int(state["step"])
        if config.bank.seed is None:
            self.seed = state["seed"]
        estimated = config.norm_constant is None or config.norm_constant_momentum < 1
        if estimated and state["temperature"] == config.temperature:
            z = state["norm_constant"]
            _check("norm_constant", z, z is None or 0 < z < math.inf, "a positive number")
            self.norm_constant = z
        if isinstance(self.bank, ShardedMemoryBank):
            self.bank.awaits_load = self.step > 0


def _unit_rows(embeddings: Tensor, valid: Tensor) -> Tensor:
    """Return ``(B, D)`` embeddings of unit norm, in float32 or wider; zeros if not valid."""
    return normalize(at_least_float32(torch.where(valid[:, None], embeddings, 0)), dim=1)
