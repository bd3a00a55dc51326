"""PIRL's loss, Eq. 5 of the paper, with its settings, its memory bank and its state.

The estimators of L_NCE are in :mod:`pirl_plugin.estimators`, the scores in
:mod:`pirl_plugin.scores`, the bank in :mod:`pirl_plugin.bank`.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pirl_plugin.bank import DTYPES, MemoryBank, check_index
from pirl_plugin.distributed import rank, sum_over_ranks, world_size
from pirl_plugin.estimators import ESTIMATORS, at_least_float32, uses_norm_constant
from pirl_plugin.negatives import draw_negatives
from pirl_plugin.scores import Contrast, wide_type
from pirl_plugin.sharded_bank import ShardedMemoryBank

if TYPE_CHECKING:
    from typing_extensions import Self

SECTION = "LOSS.pirl_loss"
_BANKS: dict[str, type[MemoryBank]] = {"replicated": MemoryBank, "sharded": ShardedMemoryBank}
_MANY_STEPS = 100  # after which what looks like a mistake in the loop is logged


@dataclass
class BankConfig:
    """``LOSS.pirl_loss.bank``: see :class:`pirl_plugin.bank.MemoryBank`."""

    momentum: float = 0.5  # m of row ← normalise(m·row + (1 − m)·f(v_I))
    placement: str = "replicated"  # or sharded: each rank holds 1/W of the rows
    dtype: str = "float32"  # of the rows; or bfloat16, float16
    init: str = "random"  # or embeddings: f(v_I) as rows, by a pass before training
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
    norm_constant_momentum: float = 1.0  # below 1: Z ← m·Z + (1 − m)·(this batch's), each step
    term_weights: list[float] | None = None  # one for each output; None: by lambda_invariance
    embedding_dim: int = 128  # width of the embeddings
    bank: BankConfig = field(default_factory=BankConfig)

    def __post_init__(self) -> None:
        images, z = self.num_train_samples, self.norm_constant
        _check("num_train_samples", images, images == -1 or images >= 2, "at least 2 images")
        _check_name("estimator", self.estimator, ESTIMATORS)
        _check_name("negatives", self.negatives, ("per_image", "per_batch"))
        weight, m = self.lambda_invariance, self.norm_constant_momentum
        _check("lambda_invariance", weight, 0 <= weight <= 1, "a weight in [0, 1]")
        _check("norm_constant_momentum", m, 0 <= m <= 1, "a weight in [0, 1]")
        # Below 1/709, exp(1/τ) leaves float64.
        _check("temperature", self.temperature, self.temperature >= 1.5e-3, "at least 0.0015")
        _check("norm_constant", z, z is None or 0 < z < math.inf, "a number above 0, or null")
        weights = self.term_weights
        if weights is not None:
            weights = self.term_weights = [float(weight) for weight in weights]
            fit = bool(weights) and min(weights) >= 0 and sum(weights) > 0
            _check("term_weights", weights, fit, "weights of at least 0, one of them above")
        most = math.inf if self.replacement or images < 0 else images - 1
        fits = 1 <= self.num_negatives <= most
        _check("num_negatives", self.num_negatives, fits, f"1 to {most} for {images} images")

    @classmethod
    def from_mapping(cls, section: Mapping[str, Any]) -> PIRLLossConfig:
        """Read a section; ``name``, which the host adds, is left out.

        Raises:
            ValueError: the loss cannot use a key or a value.
        """
        values = {key: value for key, value in section.items() if key != "name"}
        try:
            bank = BankConfig(**(values.pop("bank", None) or {}))
            return cls(bank=bank, **values)
        except TypeError as error:  # an unknown key, or a text where a number is compared
            raise ValueError(f"{SECTION} = {values}: {error}; correct that key") from error

    def weights(self, num_outputs: int) -> list[float]:
        """Return the weight of each output's term: Eq. 5, or ``term_weights``.

        Several transformed versions share λ equally; the image, which is last, has 1 − λ.

        Raises:
            ValueError: ``term_weights`` are of another number, or there is no transformed version
                and λ is not 0.
        """
        given, weight, transformed = self.term_weights, self.lambda_invariance, num_outputs - 1
        if given is not None:
            fits = len(given) == num_outputs
            _check("term_weights", given, fits, f"{num_outputs} weights, one for each output")
            return given
        if transformed == 0:
            _check("lambda_invariance", weight, weight == 0, "0 (NPID) for f(v_I) alone")
            return [1.0]
        return [weight / transformed] * transformed + [1 - weight]


def _check(key: str, value: object, fits: bool, expected: str) -> None:
    if not fits:
        raise ValueError(f"{SECTION}.{key} = {value!r}: expected {expected}; set it to that")


def _check_name(key: str, value: str, names: Sequence[str] | Mapping[str, object]) -> None:
    _check(key, value, value in names, f"one of {', '.join(names)}")


@dataclass
class LastStep:
    """What the last training step compared, for reports.

    Attributes:
        terms: L_NCE of each output of a weight above 0, unweighted, by name (``invariance``,
            ``image``); the mean over ranks is the mean over all valid images.
        moved: ``(2,)``, what :meth:`pirl_plugin.bank.MemoryBank.move` returned.
        queries: the outputs, of unit norm, by the names of ``terms``: ``(B, D)``, without a graph.
        positives: ``(B, D)``, their rows m_I of the bank, as they were then.
        valid: ``(B,)`` bool; of the others, queries and positives say nothing.
    """

    terms: dict[str, Tensor] = field(default_factory=dict)
    moved: Tensor = field(default_factory=lambda: torch.zeros(2))
    queries: dict[str, Tensor] = field(default_factory=dict)
    positives: Tensor = field(default_factory=lambda: torch.zeros(0))
    valid: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))

    def add(self, part: LastStep) -> None:
        """Add a micro-batch."""
        if not self.terms:
            self.__dict__.update(part.__dict__)
            return
        self.terms = {name: term + part.terms[name] for name, term in self.terms.items()}
        self.queries = {n: torch.cat([q, part.queries[n]]) for n, q in self.queries.items()}
        self.positives = torch.cat([self.positives, part.positives])
        self.valid = torch.cat([self.valid, part.valid])


class PIRLLoss(nn.Module):
    """The contrastive loss over a memory bank, for an image and its transformed version.

    Averaged over the ranks, as ``DistributedDataParallel`` averages gradients, it is the mean over
    all valid images. The ``state_dict`` has the partition constant Z, the number of steps and a
    replicated bank; ``bank.save`` saves a sharded one. Call :meth:`update` after the optimiser's
    step. In a test phase (``torch.no_grad()``, ``loss.eval()``) the loss is 0: test images have no
    row in the bank.

    Args:
        num_train_samples: |D|, the number of training images.
        **settings: the other fields of :class:`PIRLLossConfig`, such as ``estimator``,
            ``lambda_invariance``, ``temperature``, ``num_negatives`` and ``bank``, a mapping with
            fields of :class:`BankConfig`.

    Attributes:
        bank: the :class:`~pirl_plugin.bank.MemoryBank`, replicated or sharded.
        norm_constant: Z, scalar float64; NaN until it is known. Used by the ``nce`` estimator.
        step: training steps done, which keys the draw of negatives.
        seed: of the bank's initial rows and of the draw; None (as 0) until it is known.
        last_step: what the last step compared, for reports.

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

    norm_constant: Tensor

    def __init__(self, num_train_samples: int, **settings: Any) -> None:
        super().__init__()
        settings["num_train_samples"] = num_train_samples
        self.config = config = PIRLLossConfig.from_mapping(settings)
        self.step, self.seed = 0, config.bank.seed
        self.last_step = LastStep()
        self.bank = make_bank(config, self.seed or 0)
        z = config.norm_constant
        self.norm_constant_known = z is not None
        constant = torch.tensor(math.nan if z is None else z, dtype=torch.float64)
        self.register_buffer("norm_constant", constant)
        self._whole: WholeBatch | None = None  # the batch whose micro-batches are being scored
        self._batches = 0  # since the bank was last updated

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
            negatives: ``(B, N)`` int64, a given draw of any N; by default the loss draws its own.

        Returns:
            The loss, a scalar: this rank's share, times the number of ranks. Without one valid row
            it is 0, with its graph intact. In a test phase it is 0, without a graph.

        Raises:
            ValueError: embeddings of another shape; in training, on a CPU, an index outside the
                data set. On a GPU the loss is NaN then, to save a synchronisation.
            RuntimeError: a micro-batch, before Z is known; see :meth:`micro_batches`.
        """
        outputs = list_outputs(f_image, g_transformed)  # each B×D; the image's is last
        index = self._check_batch(outputs, index)  # B
        weights = self.config.weights(len(outputs))  # Eq. 5: (λ, 1 − λ)
        if not (self.training and torch.is_grad_enabled()):
            return at_least_float32(f_image.new_zeros(()))
        used = [t for t, weight in enumerate(weights) if weight > 0]  # T of them
        with torch.autocast(device_type=index.device.type, enabled=False):
            valid, contrast = self.contrast([outputs[t] for t in used], index, negatives)
            share = share_of_all_ranks(valid) if self._whole is None else self._whole.share
            if self._whole is None and self.needs_norm_constant:
                self.move_norm_constant(contrast.sum_of_exponentials(valid))
            per_image = contrast.estimate(self._estimator())  # L_NCE: T×B
            # Mean over the valid images of all ranks: T. Of a micro-batch, its part of the mean.
            means = torch.where(valid, per_image, 0).sum(dim=1) * share
            loss = torch.stack([weights[t] * mean for t, mean in zip(used, means, strict=True)])
            loss = loss.sum()
            # DistributedDataParallel waits for the gradient of a head that no term uses.
            for t in set(range(len(outputs))) - set(used):
                loss = loss + 0 * outputs[t].masked_fill(~valid[:, None], 0).float().sum()
        several = len(outputs) > 2
        names = [f"invariance_{t}" if several else "invariance" for t in range(len(outputs) - 1)]
        self._record([[*names, "image"][t] for t in used], means.detach(), contrast, valid)
        return loss.masked_fill((index >= self.bank.num_rows).any(), torch.nan)

    @torch._disable_dynamo
    def update(self, index: Tensor, f_image: Tensor) -> None:
        """Gather f(v_I) from all ranks, move the bank and count the step. Collective.

        Args:
            index: ``(B,)`` int64, rows of this rank's images in the data set; −1 leaves one out.
                With a replicated bank, B is the same on all ranks.
            f_image: ``(B, D)`` f(v_I); detached and normalised here.

        Raises:
            FloatingPointError: on a CPU, an embedding is not finite; the bank is left as it was.
            ValueError: embeddings of another shape; on a CPU, an index is outside the data set, or
                the ranks have different B.
        """
        self.last_step.moved = self.bank.update(index, f_image)
        self.step, self._batches = self.step + 1, 0
        if self.step == _MANY_STEPS:
            seen = min(_MANY_STEPS * len(index), len(self.bank.rows))
            if self.bank.visited.sum() < seen / 4 and rank() == 0:
                logging.root.warning(
                    f"PIRLLoss: {_MANY_STEPS} steps visited {int(self.bank.visited.sum())} rows of "
                    f"the memory bank: expected about {seen}; give each image's number in the data "
                    f"set as index, not its class"
                )

    def fill_bank(self, index: Tensor, f_image: Tensor) -> None:
        """Make f(v_I) the images' rows, before training: see :meth:`update`. Collective."""
        self.bank.update(index, f_image, momentum=0.0)

    @contextmanager
    def micro_batches(self, index: Tensor) -> Iterator[WholeBatch]:
        """Let the calls within be of micro-batches, whose losses add up to the batch's.

        Collective. All are scored with this step's draw, and none moves Z: where the whole batch
        ``needs_norm_constant``, survey all of them first. :meth:`update` takes the whole batch.

        Args:
            index: ``(B,)`` int64, rows of this rank's images, of all its micro-batches, no other.

        Example:
            >>> loss = PIRLLoss(100, embedding_dim=8, num_negatives=16, estimator="info_nce")
            >>> f, index = torch.randn(4, 8, requires_grad=True), torch.tensor([3, 14, 15, 92])
            >>> with loss.micro_batches(index):
            ...     for part in (slice(0, 2), slice(2, 4)):
            ...         loss(f[part], f[part], index[part]).backward()  # gradients add up
            >>> loss.update(index, f)  # after the optimiser's step
        """
        self._whole, self.last_step = WholeBatch(self, check_index(index)), LastStep()
        self._batches += 1
        try:
            yield self._whole
        finally:
            self._whole = None

    @property
    def needs_norm_constant(self) -> bool:
        """Whether this step's batch sets or moves Z."""
        moves = self.config.norm_constant_momentum < 1 or not self.norm_constant_known
        return uses_norm_constant(self.config.estimator) and moves

    def _check_batch(self, outputs: Sequence[Tensor], index: Tensor) -> Tensor:
        index, dim = check_index(index), self.bank.rows.shape[1]
        for embeddings in outputs:
            if embeddings.shape != (len(index), dim) or not embeddings.is_floating_point():
                raise ValueError(
                    f"embeddings are {embeddings.dtype} of shape {tuple(embeddings.shape)}: "
                    f"expected floats ({len(index)}, {dim}); make the head's out_dim and "
                    f"{SECTION}.embedding_dim equal"
                )
        if self.training and torch.is_grad_enabled() and index.device.type == "cpu":
            wrong = (index < -1) | (index >= self.bank.num_rows)
            if wrong.any():
                raise ValueError(
                    f"index {int(index[wrong][0])} is outside the memory bank of "
                    f"{self.bank.num_rows} rows: expected each image's row in the data set, or -1 "
                    f"to leave it out; set num_train_samples to the number of images"
                )
        return index

    def contrast(
        self, outputs: Sequence[Tensor], index: Tensor, negatives: Tensor | None = None
    ) -> tuple[Tensor, Contrast]:
        """Return which images are valid, and T outputs ``(B, D)`` beside their rows and draw."""
        valid = (index >= 0) & (index < self.bank.num_rows)  # B
        # Zeros where not valid, so that no gradient comes from there: T×B×D
        queries = torch.stack(
            [normalize(at_least_float32(torch.where(valid[:, None], f, 0))) for f in outputs]
        )
        rows = torch.where(valid, index, 0)  # B
        table = self.bank.rows
        if negatives is None:
            config, taken = self.config, rows
            per_batch = config.negatives == "per_batch"
            if per_batch:
                taken = torch.where(valid, index, -1) if self._whole is None else self._whole.index
            drawn = draw_negatives(
                rows,
                len(table),
                config.num_negatives,
                self.seed or 0,
                self.step,
                replacement=config.replacement,
                per_batch=per_batch,
                exclude=self.bank.local_index(taken),
            )
        elif self.bank.persistent:
            drawn = negatives
        else:  # a given draw may lie in any shard
            table = self.bank.lookup(negatives.flatten())
            drawn = torch.arange(len(table), device=table.device).view_as(negatives)
        positives = self.bank.lookup(rows)  # m_I: B×D
        return valid, Contrast(queries, positives, table, drawn, self.config.temperature)

    def _estimator(self) -> Callable[..., Tensor]:
        estimator = ESTIMATORS[self.config.estimator]
        if not uses_norm_constant(self.config.estimator):
            return estimator
        if self._whole is not None and self._whole.needs_norm_constant:
            raise RuntimeError(
                "a micro-batch was scored before Z is known: expected survey(...) of all "
                "micro-batches and set_norm_constant() first; call them if needs_norm_constant"
            )
        # Z is still unknown if no rank had a valid image: any constant does for a loss of 0.
        z = self.norm_constant.masked_fill(self.norm_constant.isnan(), self.bank.num_rows)
        return functools.partial(estimator, norm_constant=z, num_rows=self.bank.num_rows)

    @torch.no_grad()
    def move_norm_constant(self, sums: Tensor) -> None:
        """Estimate Z = |D| · mean of exp(s/τ) over the negatives of a batch, on all ranks.

        The first batch sets Z (Wu et al. 2018, Sec. 3.2); with ``norm_constant_momentum`` below 1,
        later batches move it. The positive is no noise sample and stays out.

        Args:
            sums: ``(2,)``, :meth:`pirl_plugin.scores.Contrast.sum_of_exponentials` of this rank.
        """
        total, number = sum_over_ranks(sums)
        estimate = self.bank.num_rows * total / number  # NaN without a valid row on any rank
        if self.norm_constant_known:
            estimate = torch.lerp(estimate, self.norm_constant, self.config.norm_constant_momentum)
        self.norm_constant.copy_(torch.where(number > 0, estimate, self.norm_constant))
        if not self.norm_constant_known:
            self.norm_constant_known = bool(number > 0)  # waits for the GPU, in the first step

    def _record(
        self, names: Sequence[str], means: Tensor, contrast: Contrast, valid: Tensor
    ) -> None:
        terms = dict(zip(names, means, strict=True))
        queries = dict(zip(names, contrast.queries.detach(), strict=True))
        moved = self.last_step.moved
        part = LastStep(terms, moved, queries, contrast.positives, valid)
        if self._whole is not None:
            self.last_step.add(part)
            return
        self.last_step = part
        self._batches += 1
        if self._batches == _MANY_STEPS:
            logging.root.warning(
                f"PIRLLoss was given {_MANY_STEPS} batches since its memory bank was last updated: "
                f"call loss.update(index, f_image) after each step of the optimiser"
            )

    # State

    def resize(self, num_train_samples: int) -> None:
        """Make a new bank, for a data set of ``num_train_samples`` images, on the same device."""
        self.config.num_train_samples = num_train_samples
        self.bank = make_bank(self.config, self.seed or 0).to(self.bank.rows.device)

    def resolve_seed(self, seed: int) -> None:
        """Take ``seed`` where neither the configuration nor a checkpoint has given one."""
        if self.seed is None:
            self.seed = seed
            if seed != 0 and not self.bank.loaded:
                self.resize(self.bank.num_rows)

    def hyperparameters(self) -> dict[str, object]:
        """Return the keys of the configuration but |D|, with the seed that is in use."""
        keys = asdict(self.config)
        del keys["num_train_samples"]
        bank = {**keys.pop("bank"), "seed": self.seed or 0}
        return {**keys, **{f"bank.{key}": value for key, value in bank.items()}}

    def get_extra_state(self) -> dict[str, Any]:
        """Return what a checkpoint holds beside the tensors."""
        return {"step": self.step, "hyperparameters": self.hyperparameters()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Continue the stream of negatives where the checkpoint ends.

        The configuration wins over the checkpoint's hyperparameters, and what differs is logged.
        """
        self.step, before = int(state["step"]), state["hyperparameters"]
        if self.config.bank.seed is None:
            self.seed = before.get("bank.seed", self.seed)
        changed = [
            f"{key}: {before[key]} → {value}"
            for key, value in self.hyperparameters().items()
            if before.get(key, value) != value
        ]
        if changed:
            logging.root.warning(
                f"{SECTION} differs from the checkpoint's, and the configuration wins: "
                f"{', '.join(changed)}"
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        constant = self.norm_constant
        self.norm_constant = constant.float()  # there are devices without float64
        super()._apply(fn, recurse)
        device = self.norm_constant.device  # and half() casts buffers: Z stays wide
        self.norm_constant = constant.to(wide_type(device)).to(device)
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        """Load a checkpoint of the same data set; ``load_state_dict`` calls this.

        Raises:
            ValueError: the bank has another size, or rows or Z that are not usable; or it is
                sharded where this run's is replicated.
        """
        bank, rows = self.bank, state_dict.get(f"{prefix}bank.rows")
        extra = state_dict.get(f"{prefix}_extra_state")
        z = state_dict.get(f"{prefix}norm_constant")
        if rows is not None:
            found, expected = tuple(rows.shape), (bank.num_rows, bank.rows.shape[1])
            if found != expected:
                raise ValueError(
                    f"the checkpoint's memory bank is {found}, this run's is {expected} (images, "
                    f"embedding_dim): point config.DATA.TRAIN at the same data, or start again in "
                    f"another config.CHECKPOINT.DIR"
                )
            if not rows.isfinite().all() or (z is not None and z <= 0):
                raise ValueError(
                    "the checkpoint's memory bank has rows that are not finite, or Z ≤ 0: resume "
                    "an earlier checkpoint"
                )
            bank.loaded = True
            if isinstance(bank, ShardedMemoryBank):  # takes its part of a replicated bank
                bank.fill(rows, state_dict[f"{prefix}bank.visited"])
                del state_dict[f"{prefix}bank.rows"], state_dict[f"{prefix}bank.visited"]
        elif isinstance(bank, ShardedMemoryBank):
            bank.awaits_load = bank.awaits_load or bool(extra and extra["step"] > 0)
        elif extra:
            raise ValueError(
                f"{SECTION}.bank.placement = replicated: expected sharded, as in the checkpoint; "
                f"set it to sharded to resume"
            )
        super()._load_from_state_dict(state_dict, prefix, *arguments)
        if not extra:
            return
        before, config = extra["hyperparameters"], self.config
        if config.norm_constant is not None and before["norm_constant"] != config.norm_constant:
            self.norm_constant.fill_(config.norm_constant)
        elif config.norm_constant is None and (
            before["temperature"] != config.temperature or before["norm_constant"] is not None
        ):
            self.norm_constant.fill_(torch.nan)  # a mean of exp(s/τ): estimated again
        self.norm_constant_known = not bool(self.norm_constant.isnan())


class WholeBatch:
    """What the micro-batches of a batch share; made by :meth:`PIRLLoss.micro_batches`. Collective.

    Args:
        loss: whose calls are of micro-batches while this lasts.
        index: ``(B,)`` int64, rows of this rank's images, of all its micro-batches.

    Attributes:
        needs_norm_constant: whether Z is estimated from this batch: :meth:`survey` all of it first.
    """

    def __init__(self, loss: PIRLLoss, index: Tensor) -> None:
        valid = (index >= 0) & (index < loss.bank.num_rows)
        self.index, self.share = torch.where(valid, index, -1), share_of_all_ranks(valid)
        self.needs_norm_constant = loss.needs_norm_constant
        self._loss = loss
        self._sums = torch.zeros(2, dtype=wide_type(index.device), device=index.device)

    @torch.no_grad()
    def survey(
        self, f_image: Tensor, g_transformed: Tensor | Sequence[Tensor] | None, index: Tensor
    ) -> None:
        """Add a micro-batch to what Z is estimated from; arguments as of the loss."""
        outputs = list_outputs(f_image, g_transformed)
        weights = self._loss.config.weights(len(outputs))
        used = [one for one, weight in zip(outputs, weights, strict=True) if weight > 0]
        with torch.autocast(device_type=index.device.type, enabled=False):
            valid, contrast = self._loss.contrast(used, index)
            self._sums += contrast.sum_of_exponentials(valid)

    def set_norm_constant(self) -> None:
        """Estimate Z from the micro-batches surveyed, of all ranks. Collective."""
        self.needs_norm_constant = False
        self._loss.move_norm_constant(self._sums)


def list_outputs(f_image: Tensor, g_transformed: Tensor | Sequence[Tensor] | None) -> list[Tensor]:
    """Return the outputs as one list, the image's last."""
    if g_transformed is None:
        return [f_image]
    transformed = [g_transformed] if isinstance(g_transformed, Tensor) else g_transformed
    return [*transformed, f_image]


def share_of_all_ranks(valid: Tensor) -> Tensor:
    """Return the weight that makes a sum over this rank's images a mean over all valid images.

    DistributedDataParallel averages gradients over W ranks, so each rank's sum counts W times.
    """
    return world_size() / sum_over_ranks(valid.sum().float()).clamp(min=1)


def make_bank(config: PIRLLossConfig, seed: int) -> MemoryBank:
    """Make the memory bank of a configuration.

    Raises:
        ValueError: there are too few images.
    """
    images, negatives = config.num_train_samples, config.num_negatives
    _check("num_train_samples", images, images >= 2, "the number of training images")
    kind = _BANKS[config.bank.placement]
    if kind is ShardedMemoryBank and not config.replacement:
        most = images // world_size() - 1  # others in the smallest shard
        _check("num_negatives", negatives, negatives <= most, f"at most {most} without replacement")
    dtype, momentum = config.bank.dtype, config.bank.momentum
    bank = kind(images, config.embedding_dim, momentum=momentum, dtype=dtype, seed=seed)
    # The paper has 2.5 %: beyond 10 %, the noise term of nce outweighs the data.
    if config.estimator == "nce" and negatives > max(0.1 * images, 100) and rank() == 0:
        logging.root.warning(
            f"{SECTION}.estimator = nce with {negatives} negatives of {images} images: take "
            f"info_nce, with a temperature such as 0.2, or fewer negatives"
        )
    return bank
