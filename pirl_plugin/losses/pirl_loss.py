"""PIRL's loss, Eq. 5: λ · L_NCE(m_I, g(v_It)) + (1 − λ) · L_NCE(m_I, f(v_I)).

The equation of L_NCE on scores is in :mod:`pirl_plugin.losses.estimators`, how scores are summed
in :mod:`pirl_plugin.losses.engines`, the bank in :mod:`pirl_plugin.memory`.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pirl_plugin.distributed import sum_over_ranks
from pirl_plugin.losses.bank_update import BankUpdate
from pirl_plugin.losses.checkpoint import LossCheckpoint
from pirl_plugin.losses.config import PIRLLossConfig
from pirl_plugin.losses.engines.base import ContrastBatch, Engine
from pirl_plugin.losses.engines.choice import check_form, make_engine
from pirl_plugin.losses.estimators import get_estimator
from pirl_plugin.losses.estimators.base import NormConstant
from pirl_plugin.losses.estimators.nce import sum_of_exponentials
from pirl_plugin.losses.inputs import check_negatives, check_shapes, find_outside, unit
from pirl_plugin.losses.last_step import LastStep, term_names
from pirl_plugin.losses.make_bank import make_bank
from pirl_plugin.losses.micro_batches import WholeBatch, share_of_all_ranks
from pirl_plugin.memory.checks import row_vector
from pirl_plugin.utils.precision import at_least_float32

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pirl_plugin.memory import Draw


class PIRLLoss(LossCheckpoint):
    """The contrastive loss over a memory bank, for an image and its transformed version.

    Averaged over the ranks, as ``DistributedDataParallel`` averages gradients, it is the mean over
    all valid rows. The ``state_dict`` has the partition constant Z, the number of steps and a
    replicated bank; ``bank.save`` saves a sharded one. :meth:`update` follows the optimiser's step.

    In a test phase, without gradients (``torch.no_grad()``, ``torch.inference_mode()``) or after
    ``loss.eval()``, the loss is 0: test images have no row in the bank to be scored against.

    Args:
        num_train_samples: |D|, the number of training images.
        estimator: ``nce``, ``nce_softmax`` or ``info_nce``.
        lambda_invariance: λ, weight of the transformed version.
        temperature: τ.
        num_negatives: N, for each image.
        negatives: ``per_image``, or ``per_batch`` for one draw that the batch shares.
        replacement: whether one image may be drawn twice for an image.
        norm_constant: Z of ``nce``; None: estimated from the first batch.
        norm_constant_momentum: weight of the old Z where later batches move it; 1 keeps it.
        term_weights: weight of each output's term; None: by ``lambda_invariance``.
        embedding_dim: D, width of the embeddings.
        scores: engine, ``auto``, ``plain``, ``blocked`` or ``triton``.
        bank: ``momentum``, ``placement``, ``dtype``, ``init``, ``seed``, ``overlap`` of the bank.

    Attributes:
        bank: the :class:`~pirl_plugin.memory.MemoryBank`, replicated or sharded.
        norm_constant: Z, scalar float64; NaN until it is known. Used by the ``nce`` estimator.
        step: training steps done, which keys the draw of negatives.
        seed: of the bank's initial rows and of the draw; None (as 0) until it is known.
        last_step: what the last step did, for reports.

    Raises:
        ValueError: a value cannot be used; the message names its key.

    Example:
        >>> import torch
        >>> loss = PIRLLoss(num_train_samples=100, embedding_dim=8, num_negatives=16)
        >>> g, f = torch.randn(4, 8, requires_grad=True), torch.randn(4, 8, requires_grad=True)
        >>> rows = torch.tensor([3, 14, 15, 92])  # of the images in the data set
        >>> loss([g, f], rows).backward()  # and the optimiser's step, then:
        >>> loss.update(rows, f)
        >>> loss.step, int(loss.bank.visited.sum())
        (1, 4)
    """

    norm_constant: Tensor

    def __init__(
        self,
        num_train_samples: int,
        *,
        estimator: str = "nce",
        lambda_invariance: float = 0.5,
        temperature: float = 0.07,
        num_negatives: int = 32000,
        negatives: str = "per_image",
        replacement: bool = True,
        norm_constant: float | None = None,
        norm_constant_momentum: float = 1.0,
        term_weights: Sequence[float] | None = None,
        embedding_dim: int = 128,
        scores: str = "auto",
        bank: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__()
        keys = {
            "num_train_samples": num_train_samples,
            "estimator": estimator,
            "lambda_invariance": lambda_invariance,
            "temperature": temperature,
            "num_negatives": num_negatives,
            "negatives": negatives,
            "replacement": replacement,
            "norm_constant": norm_constant,
            "norm_constant_momentum": norm_constant_momentum,
            "term_weights": term_weights,
            "embedding_dim": embedding_dim,
            "scores": scores,
            "bank": bank,
        }
        self.config = config = PIRLLossConfig.from_mapping(keys)
        self.estimator = get_estimator(config.estimator)
        check_form(config.scores, self.estimator)
        self.step, self.seed = 0, config.bank.seed
        self.last_step = LastStep()
        self.bank = make_bank(config, self.seed or 0)
        constant = math.nan if norm_constant is None else float(norm_constant)
        self.register_buffer("norm_constant", torch.tensor(constant, dtype=torch.float64))
        self.norm_constant_known = norm_constant is not None
        self._whole: WholeBatch | None = None  # the batch whose micro-batches are being scored

    @torch._disable_dynamo
    def forward(
        self, output: Tensor | Sequence[Tensor], target: Tensor, negatives: Tensor | None = None
    ) -> Tensor:
        """Compute Eq. 5. ``torch.compile`` leaves it as it is: its engines are compiled already.

        Args:
            output: ``[g(v_It), f(v_I)]``, each ``(B, D)``, or a longer list that ends with f(v_I),
                or f(v_I) alone where λ = 0; normalised here, in float32 or wider.
            target: ``(B,)`` int64, each image's row in the data set; −1 leaves an image out.
            negatives: ``(B, N)`` int64, a given draw of any N; by default the loss draws its own.

        Returns:
            The loss, a scalar: this rank's share, times the number of ranks. Without one valid row
            it is 0, with its graph intact. In a test phase it is 0, without a graph.

        Raises:
            ValueError: embeddings of the wrong number or width, rows or negatives of another shape
                or type, or, in training, outside the data set. On a GPU the last is not checked, to
                save a synchronisation: the loss is NaN; ``check`` of :meth:`start_update` says why.
            RuntimeError: a micro-batch, before Z is known; see :meth:`micro_batches`.
        """
        outputs = [output] if isinstance(output, Tensor) else list(output)  # each B×D
        target = row_vector("target", target)  # B
        check_shapes(outputs, target, self.bank.rows.shape[1])
        check_negatives(target, negatives)
        weights = self.config.weights(len(outputs))
        if not (self.training and torch.is_grad_enabled()):
            return at_least_float32(outputs[-1].new_zeros(()))
        outside, negatives = find_outside(target, negatives, self.bank.num_rows)
        valid = (target >= 0) & (target < self.bank.num_rows)  # B
        rows = torch.where(valid, target, 0)
        used = [t for t, weight in enumerate(weights) if weight > 0]  # T of them
        with torch.autocast(device_type=target.device.type, enabled=False):
            batch = self.contrast([outputs[t] for t in used], rows, valid, negatives)
            engine = make_engine(self.config.scores, batch)
            # L_NCE: T×B
            per_image = self._estimate(engine, valid, batch.num_negatives)
            # its mean over the valid images of all ranks: T; of a micro-batch, its part of it
            share = self._whole.share_of(target) if self._whole else share_of_all_ranks(valid)
            means = torch.where(valid, per_image, 0).sum(dim=1) * share
            # Eq. 5: Σ_t weight_t · mean_t, with weights (λ, 1 − λ)
            loss = torch.stack([weights[t] * mean for t, mean in zip(used, means, strict=True)])
            loss = loss.sum()
            # A head that no term uses stays in the graph: DistributedDataParallel waits for it. And
            # what is not finite in it shows: the bank takes f where λ is 1, too.
            for t in set(range(len(outputs))) - set(used):
                loss = loss + 0 * outputs[t].masked_fill(~valid[:, None], 0).float().sum()
        self.last_step.record(
            term_names(len(outputs), used), means, batch, valid, adds=self._whole is not None
        )
        return loss.masked_fill(outside, torch.nan)

    @torch._disable_dynamo
    def update(self, rows: Tensor, embeddings: Tensor) -> None:
        """Gather f(v_I) from all ranks, move the bank and count the step. Collective.

        Args:
            rows: ``(B,)`` int64, rows of this rank's images in the data set; −1 leaves one out.
                With a replicated bank, B is the same on all ranks.
            embeddings: ``(B, D)`` f(v_I), the last of ``forward``'s outputs; detached and
                normalised here.

        Raises:
            FloatingPointError: on a CPU, an embedding is not finite; the bank is left as it was.
            ValueError: rows or embeddings of another number, width or type; on a CPU, a row is
                outside the bank, or the ranks have different B.
        """
        self.start_update(rows, embeddings).apply()

    def fill_bank(self, rows: Tensor, embeddings: Tensor) -> None:
        """Begin with f(v_I) as rows, not with random ones: :meth:`update` before training."""
        BankUpdate(self.bank, self.step, rows, embeddings, momentum=0.0).apply()

    def start_update(self, rows: Tensor, embeddings: Tensor) -> BankUpdate:
        """Begin :meth:`update`, and go on; its ``apply`` finishes it after the optimiser's step."""
        return BankUpdate(self.bank, self.step, rows, embeddings, self._count_step)

    def _count_step(self, moved: Tensor) -> None:
        self.last_step.end(moved)
        self.step += 1

    @contextmanager
    def micro_batches(self, target: Tensor) -> Iterator[WholeBatch]:
        """Have the calls within be of micro-batches, whose losses add up to the batch's.

        Collective. All are scored with this step's draw, and none moves Z: where the whole batch
        ``needs_norm_constant``, survey all of them first. :meth:`update` takes the whole batch.

        Args:
            target: ``(B,)`` int64, rows of this rank's images, of all its micro-batches, no other.

        Example:
            >>> loss = PIRLLoss(100, embedding_dim=8, num_negatives=16, estimator="info_nce")
            >>> f, rows = torch.randn(4, 8, requires_grad=True), torch.tensor([3, 14, 15, 92])
            >>> with loss.micro_batches(rows) as whole:
            ...     for part in (slice(0, 2), slice(2, 4)):
            ...         loss([f[part], f[part]], rows[part]).backward()  # gradients add up
            >>> loss.update(rows, f)  # after the optimiser's step
        """
        self._whole, self.last_step.terms = WholeBatch(self, target), {}
        try:
            yield self._whole
        finally:
            self._whole = None

    @property
    def needs_norm_constant(self) -> bool:
        """Whether this step's batch sets or moves Z."""
        moves = self.config.norm_constant_momentum < 1 or not self.norm_constant_known
        return self.estimator.uses_norm_constant and moves

    def contrast(
        self, outputs: Sequence[Tensor], rows: Tensor, valid: Tensor, given: Tensor | None = None
    ) -> ContrastBatch:
        """T outputs, each ``(B, D)``, of images ``(B,)``, with positives and this step's draw."""
        # queries: T×B×D, unit norm; blanked where invalid, so that no gradient comes from them
        queries = torch.stack([unit(output, valid) for output in outputs])
        # positives m_I: B×D; table: rows×D; draw: B×N of its rows, the same for all T terms
        table, draw = self._draw(rows, valid, given)
        positives = self.bank.lookup(rows)
        return ContrastBatch(queries, positives, table, draw, self.config.temperature)

    def _estimate(self, engine: Engine, valid: Tensor, num_negatives: int) -> Tensor:
        """Compute L_NCE of each term and image, ``(T, B)``, and Z first where it is due."""
        if self._whole is not None:
            self._whole.check_surveyed()
        elif self.needs_norm_constant:
            sums = sum_of_exponentials(engine.log_sums(), valid, num_negatives)
            self.move_norm_constant(sums)
        # Still unknown where no rank had a valid row: any constant does for a loss of 0.
        value = self.norm_constant.masked_fill(self.norm_constant.isnan(), self.bank.num_rows)
        return engine.loss(self.estimator, NormConstant(value, self.bank.num_rows))

    @torch.no_grad()
    def move_norm_constant(self, sums: Tensor) -> None:
        """Estimate Z = |D| · mean of exp(s/τ) over the negatives of a batch, on all ranks.

        The first batch sets Z; with ``norm_constant_momentum`` below 1, later batches move it.

        Args:
            sums: ``(2,)`` of this rank, see
                :func:`~pirl_plugin.losses.estimators.nce.sum_of_exponentials`.
        """
        total, number = sum_over_ranks(sums)
        estimate = self.bank.num_rows * total / number  # NaN without a valid row on any rank
        if self.norm_constant_known:
            estimate = torch.lerp(estimate, self.norm_constant, self.config.norm_constant_momentum)
        self.norm_constant.copy_(torch.where(number > 0, estimate, self.norm_constant))
        if not self.norm_constant_known:
            self.norm_constant_known = bool(number > 0)  # waits for the GPU, in the first step

    def _draw(
        self, rows: Tensor, valid: Tensor, given: Tensor | None
    ) -> tuple[Tensor, Draw | Tensor]:
        """A table ``(rows, D)``, and the negatives of each image as indices of it."""
        if given is not None:
            return self.bank.table_for(given)
        draw = self.bank.draw(
            rows,
            self.config.num_negatives,
            seed=self.seed or 0,
            step=self.step,
            replacement=self.config.replacement,
            per_batch=self.config.negatives == "per_batch",
        )
        if draw.per_batch:  # of the images outside the batch, of which a micro-batch is part
            taken = self._whole.rows if self._whole else torch.where(valid, rows, -1)
            draw = replace(draw, exclude=self.bank.local_index(taken))
        return self.bank.rows, draw
