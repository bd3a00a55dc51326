"""PIRL's loss, Eq. 5 of the paper, with its memory bank and its state.

Its settings are in :mod:`pirl_plugin.method.settings`, the estimators of L_NCE in
:mod:`pirl_plugin.method.estimators`, the scores in :mod:`pirl_plugin.method.scores`, the bank in
:mod:`pirl_plugin.method.bank`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pirl_plugin.method.bank import MemoryBank
from pirl_plugin.method.estimators import (
    ESTIMATORS,
    at_least_float32,
    uses_norm_constant,
)
from pirl_plugin.method.negatives import draw_for_batch, draw_for_each
from pirl_plugin.method.scores import BankScores
from pirl_plugin.method.settings import BankConfig, PIRLLossConfig
from pirl_plugin.method.sharded_bank import ShardedMemoryBank
from pirl_plugin.system.failures import Refused, check, check_whole, type_and_shape
from pirl_plugin.system.ranks import gather_objects, rank, sum_over_ranks, world_size

_BANKS: dict[str, type[MemoryBank]] = {"replicated": MemoryBank, "sharded": ShardedMemoryBank}
_MANY_STEPS = 100  # then a probable mistake in the training loop is logged


@dataclass
class LastStep:
    """The values of the last training step, for reports.

    Attributes:
        terms: unweighted L_NCE of each output with a weight above 0, by name (``invariance``,
            ``image``). The mean over ranks is the mean over all valid images.
        moved: ``(2,)``, the result of :meth:`pirl_plugin.method.bank.MemoryBank.move`.
        queries: the outputs with unit norm, by the names of ``terms``: ``(B, D)``, without a graph.
        positives: ``(B, D)``, the images' rows m_I of the bank before the update.
        valid: ``(B,)`` bool; queries and positives of other images have no meaning.
    """

    terms: dict[str, Tensor] = field(default_factory=dict)
    moved: Tensor = field(default_factory=partial(torch.zeros, 2))
    queries: dict[str, Tensor] = field(default_factory=dict)
    positives: Tensor = field(default_factory=partial(torch.zeros, 0))
    valid: Tensor = field(default_factory=partial(torch.zeros, 0, dtype=torch.bool))


class PIRLLoss(nn.Module):
    """The contrastive loss over a memory bank, for an image and its transformed version.

    Its average over the ranks, as ``DistributedDataParallel`` averages gradients, is the mean over
    all valid images. The ``state_dict`` has the partition constant Z, the number of steps and a
    replicated bank; ``bank.save`` saves a sharded bank. Call :meth:`update` after the optimiser's
    step. In a test phase (``torch.no_grad()``, ``loss.eval()``) the loss is 0: test images have no
    row in the bank.

    Args:
        num_train_samples: |D|, the number of training images.
        estimator: of L_NCE: ``nce`` (Wu et al. 2018), ``nce_softmax`` (Eq. 3 and 4 as printed),
            ``info_nce``, or a function of scores as in :mod:`pirl_plugin.method.estimators`.
        lambda_invariance: λ of Eq. 5, the weight of the transformed version's term; 0 is NPID.
        temperature: τ, which divides all scores.
        num_negatives: N, drawn for each image; for a small data set at most half of |D|.
        negatives: ``per_image``, or ``per_batch``: one draw that the batch shares.
        replacement: whether a row may be drawn twice for an image.
        norm_constant: Z of ``nce``; None: estimated from the first batch.
        norm_constant_momentum: m; below 1, each batch moves Z ← m·Z + (1 − m)·(Z of the batch).
        term_weights: a weight for the term of each output, the image's last; None: from
            ``lambda_invariance``.
        embedding_dim: D, the width of the embeddings.
        bank: settings of the memory bank, a :class:`~pirl_plugin.method.settings.BankConfig` or a
            mapping of its fields.

    Attributes:
        bank: the :class:`~pirl_plugin.method.bank.MemoryBank`, replicated or sharded.
        norm_constant: Z, a float; None until it is known. The ``nce`` estimator uses it.
        step: number of training steps so far, a key of the draw of negatives.
        seed: seed of the bank's initial rows and of the draw; None (same as 0) until it is known.
        last_step: the values of the last step, for reports.

    Raises:
        ValueError: a value cannot be used; the message names its argument.
        TypeError: an argument is unknown.

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

    def __init__(
        self,
        num_train_samples: int,
        *,
        estimator: str | Callable[..., Tensor] = "nce",
        lambda_invariance: float = 0.5,
        temperature: float = 0.07,
        num_negatives: int = 32000,
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
            bank=BankConfig.of(bank),
        )
        self._function = estimator if callable(estimator) else ESTIMATORS[estimator]
        self._needs_norm_constant = uses_norm_constant(self._function)
        self.norm_constant = config.norm_constant
        self.seed = config.bank.seed
        self.step = 0
        self.last_step = LastStep()
        self._batches_since_update = 0
        self._ranks_compared = False
        self.resize(num_train_samples)
        # The paper has 2.5 %. Above 10 %, the noise term of nce is larger than the data term.
        many = max(0.1 * num_train_samples, 100)
        if config.estimator == "nce" and config.num_negatives > many and rank() == 0:
            logging.root.warning(
                f"estimator = nce with {config.num_negatives} negatives of {num_train_samples} "
                f"images: take info_nce, with a temperature such as 0.2, or fewer negatives"
            )

    # torch.compile cannot trace into the compiled draw: it runs the loss as it is.
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
            it is 0, with a graph. In a test phase it is 0, without a graph. It has first
            derivatives only: its gradient is a constant for ``create_graph``.

        Raises:
            ValueError: a tensor has another shape; in training, an index is outside the data set.
                A GPU is not waited for: then the loss is NaN, and a later call raises this.
        """
        # Check the shapes in a test phase too; then the loss is 0.
        outputs = _by_name(f_image, g_transformed)  # each (B, D)
        weights = self.config.weights(len(outputs))  # Eq. 5: λ, 1 − λ
        weight_of = dict(zip(outputs, weights, strict=True))
        for name, output in outputs.items():
            argument = "f_image" if name == "image" else "g_transformed"
            index = self.bank.check_batch(index, output, argument)  # (B,)
        if not (self.training and torch.is_grad_enabled()):
            return at_least_float32(f_image.new_zeros(()))
        # Mistakes that would change results in silence.
        if world_size() > 1 and not self._ranks_compared:
            self._compare_ranks()
        self.bank.index_check.check(index)

        used = [name for name in outputs if weight_of[name] > 0]  # T of them
        # The caller's autocast would compute the scores in half precision.
        with torch.autocast(device_type=index.device.type, enabled=False):
            # Only on a GPU: on a CPU, the check has refused such an index.
            outside = index != index.clamp(-1, self.bank.num_rows - 1)  # (B,)
            valid = (index >= 0) & ~outside  # (B,)
            invalid = ~valid[:, None]  # (B, 1)
            rows = torch.where(valid, index, 0)  # (B,)
            queries = torch.stack([at_least_float32(outputs[name]) for name in used], dim=1)
            # Invalid images have zeros, so they get no gradient: (B, T, D)
            queries = normalize(queries.masked_fill(invalid[:, None], 0), dim=2)
            scores = self._scores(queries, rows, valid, negatives)
            estimator = self._function
            if self._needs_norm_constant:
                estimator = self._with_norm_constant(scores, valid)
            per_image = scores.estimate(estimator)  # L_NCE, (B, T)

            # DistributedDataParallel averages the ranks' gradients. With the factor world_size,
            # this average is the mean over the valid images of all ranks.
            num_valid = sum_over_ranks(valid.sum(dtype=torch.float32)).clamp(min=1)
            sums = per_image.masked_fill(invalid, 0).sum(dim=0)  # (T,)
            means = sums * (world_size() / num_valid)  # (T,)
            terms = dict(zip(used, means.unbind(), strict=True))
            loss = torch.stack([weight_of[name] * term for name, term in terms.items()]).sum()
            # DistributedDataParallel waits for a gradient of every head, also of an unused one. An
            # output that is not finite shows in the loss, too: 0 times it is NaN.
            for name, output in outputs.items():
                if name not in terms:
                    loss = loss + 0 * output.masked_fill(invalid, 0).float().sum()

        self.last_step = LastStep(
            terms=dict(zip(used, means.detach().unbind(), strict=True)),
            moved=self.last_step.moved,
            queries=dict(zip(used, queries.detach().unbind(dim=1), strict=True)),
            positives=scores.positives,
            valid=valid,
        )
        self._note_batch(len(index))
        return loss.masked_fill(outside.any(), torch.nan)

    # nn.Module's own takes and returns anything. pyright does not see `__call__ = forward`.
    if TYPE_CHECKING:

        def __call__(
            self,
            f_image: Tensor,
            g_transformed: Tensor | Sequence[Tensor] | None,
            index: Tensor,
            negatives: Tensor | None = None,
        ) -> Tensor:
            """See :meth:`forward`."""

    @torch._disable_dynamo
    def update(self, index: Tensor, f_image: Tensor) -> None:
        """Gather f(v_I) from all ranks, move the bank and count the step. Collective.

        Args:
            index: ``(B,)`` int64, rows of this rank's images in the data set; −1 leaves one out.
                With a replicated bank, B is the same on all ranks.
            f_image: ``(B, D)`` f(v_I); detached and normalised here.

        Raises:
            FloatingPointError: on a CPU, an embedding is not finite; the bank does not change.
            ValueError: the embeddings have another shape; an index is outside the data set (on a
                GPU, a later call may raise this); on a CPU, the ranks have different B.
        """
        self.last_step.moved = self.bank.update(index, f_image)
        self.step += 1
        self._batches_since_update = 0
        if self.step == _MANY_STEPS:
            self._warn_of_few_rows(len(index))

    def fill_bank(self, index: Tensor, f_image: Tensor) -> None:
        """Set the images' rows to f(v_I), before training: see :meth:`update`. Collective."""
        self.bank.update(index, f_image, momentum=0.0)

    def _scores(
        self, queries: Tensor, rows: Tensor, valid: Tensor, negatives: Tensor | None
    ) -> BankScores:
        """Return the scores of outputs ``(B, T, D)`` against own rows and negatives."""
        table = self.bank.rows
        if negatives is None:
            negatives = self._draw(rows, valid)  # (B, N)
        else:
            self._check_negatives(negatives, len(rows))
            negatives = negatives.clamp(0, self.bank.num_rows - 1)  # refused later, on a GPU
            if not self.bank.replicated:  # a given draw may lie in any shard
                table = self.bank.fetch(negatives.flatten())  # (B·N, D)
                negatives = torch.arange(len(table), device=table.device).view_as(negatives)
        positives = self.bank.fetch(rows)  # m_I, (B, D)
        return BankScores(queries, positives, table, negatives, self.config.temperature)

    def _draw(self, rows: Tensor, valid: Tensor) -> Tensor:
        """Draw ``(B, N)`` rows of this rank's part of the bank, never the image itself."""
        config = self.config
        sizes = (len(self.bank.rows), config.num_negatives)
        keys = (self.seed or 0, self.step)
        if config.negatives == "per_batch":
            batch = self.bank.local_index(torch.where(valid, rows, -1))
            return draw_for_batch(batch, *sizes, *keys, config.replacement)
        # Every rank has the rows of a replicated bank, so every image is among them.
        itself = None if self.bank.replicated else self.bank.local_index(rows)
        return draw_for_each(rows, *sizes, *keys, config.replacement, itself)

    def _check_negatives(self, negatives: Tensor, batch: int) -> None:
        is_index = isinstance(negatives, Tensor) and negatives.dtype == torch.int64
        fits = is_index and negatives.ndim == 2 and len(negatives) == batch
        if not fits or negatives.shape[1] == 0:
            raise Refused(
                f"negatives is {type_and_shape(negatives)}: expected an int64 tensor of shape "
                f"({batch}, N), the numbers of other images; to share one draw, pass "
                f"negatives.expand({batch}, -1)"
            )
        # −1 is no row either. The check would take it for an image that is left out.
        self.bank.index_check.check(negatives.masked_fill(negatives < 0, -2))

    def _with_norm_constant(self, scores: BankScores, valid: Tensor) -> Callable[..., Tensor]:
        """Return the estimator as a function of scores alone: with Z, which is estimated first."""
        self._estimate_norm_constant(scores, valid)
        # Z is unknown until a rank has a valid image. Until then the loss is 0 for any Z.
        num_rows = self.bank.num_rows
        z = self.norm_constant or num_rows
        return partial(self._function, norm_constant=z, num_rows=num_rows)

    def _estimate_norm_constant(self, scores: BankScores, valid: Tensor) -> None:
        """Set Z to |D| · mean of exp(s/τ) over the negatives of the first batch, on all ranks.

        As in Wu et al. 2018, Sec. 3.2. With ``norm_constant_momentum`` below 1, later batches move
        Z. The positive is not a noise sample and is left out. This waits for a GPU.
        """
        z = self.norm_constant
        m = self.config.norm_constant_momentum
        if z is not None and m == 1:
            return
        # One embedding that is not finite would make Z, and all later losses, NaN.
        is_finite = scores.queries.isfinite().flatten(1).all(dim=1)
        total, number = sum_over_ranks(scores.sum_of_exponentials(valid & is_finite)).tolist()
        self.bank.index_check.refuse_noted()  # the GPU has just been waited for
        if number:
            estimate = self.bank.num_rows * total / number
            self.norm_constant = estimate if z is None else m * z + (1 - m) * estimate

    # Mistakes that would change results in silence

    def _compare_ranks(self) -> None:
        """Raise ``ValueError`` on all ranks, once, if their settings differ. Collective."""
        self._ranks_compared = True
        config = self.config
        settings = {field.name: repr(getattr(config, field.name)) for field in fields(config)}
        settings["estimator"] = getattr(self._function, "__name__", "a function")
        settings |= {"seed": repr(self.seed or 0), "step": repr(self.step)}
        of_ranks = gather_objects(settings)
        for name in settings:
            values = [of_rank[name] for of_rank in of_ranks]
            if len(set(values)) > 1:
                raise Refused(
                    f"{name} = {', '.join(values)} on the ranks: expected equal values; make the "
                    f"loss with the same arguments on all ranks, from the same checkpoint"
                )

    def _note_batch(self, size: int) -> None:
        """Warn once if an epoch, or many batches, have passed since the last update."""
        self._batches_since_update += 1
        batches_of_epoch = self.bank.num_rows // max(size * world_size(), 1)
        if self._batches_since_update == max(2, min(_MANY_STEPS, batches_of_epoch)):
            logging.root.warning(
                f"The memory bank was not updated in the last {self._batches_since_update} "
                f"batches: call update() after each batch"
            )

    def _warn_of_few_rows(self, batch: int) -> None:
        """Warn if few rows of the bank were visited in the first steps."""
        expected = min(_MANY_STEPS * batch, len(self.bank.rows))
        visited = int(self.bank.visited.sum())
        if visited < expected / 4 and rank() == 0:
            logging.root.warning(
                f"PIRLLoss: {_MANY_STEPS} steps visited {visited} rows of the memory bank: "
                f"expected about {expected}; give each image's number in the data set as index, "
                f"not its class"
            )

    # State

    def resize(self, num_train_samples: int) -> None:
        """Make a new bank, for a data set of ``num_train_samples`` images, on the same device."""
        check_whole("num_train_samples", num_train_samples, least=2)
        config = self.config
        device = self.bank.rows.device if hasattr(self, "bank") else "cpu"
        config.num_train_samples = num_train_samples
        self.norm_constant = config.norm_constant  # an estimate is proportional to |D|
        self._ranks_compared = False
        self.bank = _BANKS[config.bank.placement](
            num_train_samples,
            config.embedding_dim,
            momentum=config.bank.momentum,
            dtype=config.bank.dtype,
            seed=self.seed or 0,
        ).to(device)

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state that a checkpoint holds beside the bank.

        Raises:
            ValueError: the loss was given an index outside the data set, on a GPU.
        """
        self.bank.index_check.refuse_noted(wait=True)
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
            ValueError: the checkpoint's bank is sharded and this run's replicated, or vice versa.
        """
        config = self.config
        placement = config.bank.placement
        fits = placement == state["placement"]
        check("bank.placement", placement, fits, f"{state['placement']}, as in the checkpoint")

        self.step = state["step"]
        self._ranks_compared = False
        if config.bank.seed is None:
            self.seed = state["seed"]
        estimated = config.norm_constant is None or config.norm_constant_momentum < 1
        if estimated and state["temperature"] == config.temperature:
            self.norm_constant = state["norm_constant"]
        if isinstance(self.bank, ShardedMemoryBank):
            self.bank.awaits_load = True  # before the first step too: the rows may be embeddings


def _by_name(f_image: Tensor, g_transformed: Tensor | Sequence[Tensor] | None) -> dict[str, Tensor]:
    """Return the outputs by the names of their terms, the image last."""
    if g_transformed is None:
        return {"image": f_image}
    if isinstance(g_transformed, Tensor):
        return {"invariance": g_transformed, "image": f_image}
    if not isinstance(g_transformed, Sequence):
        raise Refused(
            f"g_transformed is {type_and_shape(g_transformed)}: expected a tensor, a list of "
            f"tensors, or None"
        )
    if len(g_transformed) == 1:
        return {"invariance": g_transformed[0], "image": f_image}
    outputs = {f"invariance_{t}": output for t, output in enumerate(g_transformed)}
    return {**outputs, "image": f_image}
