"""One tester for every estimator in every engine, like torchmetrics' ``MetricTester``.

The oracle is the equation on scores, in float64 and in the engine ``plain``, whose scores
``tests/losses/engines/test_plain.py`` checks against a loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import normalize

from pirl_plugin.losses.engines.base import ContrastBatch
from pirl_plugin.losses.engines.choice import make_engine
from pirl_plugin.losses.estimators.base import Estimator, NormConstant

if TYPE_CHECKING:
    from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # where Triton, or its interpreter, runs
Z, NUM_ROWS = 77.0, 60


def make_batch(
    terms: int,
    batch: int,
    dim: int,
    rows: int,
    negatives: int,
    temperature: float = 0.07,
    device: str = "cpu",
) -> ContrastBatch:
    """A random batch with a given draw, in which rows may repeat."""
    generator = torch.Generator().manual_seed(rows)
    table = normalize(torch.randn(rows, dim, generator=generator))
    queries = normalize(torch.randn(terms, batch, dim, generator=generator), dim=2)
    positives = table[torch.randint(rows, (batch,), generator=generator)]
    drawn = torch.randint(rows, (batch, negatives), generator=generator)
    tensors = (tensor.to(device) for tensor in (queries, positives, table, drawn))
    return ContrastBatch(*tensors, temperature)


def in_float64(batch: ContrastBatch) -> ContrastBatch:
    """The same batch, widened."""
    return replace(
        batch,
        queries=batch.queries.double(),
        positives=batch.positives.double(),
        table=batch.table.double(),
    )


@dataclass
class EstimatorTester:
    """Compares an estimator in an engine with its equation on scores.

    Attributes:
        estimator: the estimator.
        scores: the engine's name.
    """

    estimator: Estimator
    scores: str

    @property
    def device(self) -> str:
        """Where the engine runs in tests."""
        return DEVICE if self.scores == "triton" else "cpu"

    def value_and_gradient(
        self, batch: ContrastBatch, scores: str | None = None
    ) -> tuple[Tensor, Tensor]:
        """``(T, B)`` values, and the gradient ``(T, B, D)`` of a weighted sum of them."""
        queries = batch.queries.detach().requires_grad_()
        engine = make_engine(scores or self.scores, replace(batch, queries=queries))
        constant = torch.tensor(Z, dtype=torch.float64, device=queries.device)
        values = engine.loss(self.estimator, NormConstant(constant, NUM_ROWS))
        assert values.shape == queries.shape[:2]
        weights = torch.linspace(0.5, 2, values.numel(), device=queries.device).view_as(values)
        (gradient,) = torch.autograd.grad((values * weights).sum(), queries)
        return values.detach(), gradient

    def check_values_and_gradients(
        self, batch: ContrastBatch, rtol: float = 1e-5, atol: float = 1e-5
    ) -> None:
        """Float32 agrees with the float64 equation."""
        found = self.value_and_gradient(batch)
        expected = self.value_and_gradient(in_float64(batch), "plain")
        for mine, oracle in zip(found, expected, strict=True):
            torch.testing.assert_close(mine.double(), oracle, rtol=rtol, atol=atol)

    def check_half_rows(self, batch: ContrastBatch, dtype: torch.dtype) -> None:
        """Rows of half precision: as exact as their values are, and near the unrounded rows."""
        halves = replace(batch, positives=batch.positives.to(dtype), table=batch.table.to(dtype))
        self.check_values_and_gradients(halves, atol=1e-4)
        pairs = zip(self.value_and_gradient(halves), self.value_and_gradient(batch), strict=True)
        for mine, unrounded in pairs:
            scale = unrounded.abs().max()
            torch.testing.assert_close(mine / scale, unrounded / scale, rtol=1e-2, atol=1e-2)

    def check_shared_draw(self, batch: ContrastBatch) -> None:
        """One draw for the batch, an expanded view, gives what its copies give."""
        shared = batch.draw[:1].expand(batch.queries.shape[1], -1)  # type: ignore[index]
        assert shared.stride(0) == 0
        self.check_values_and_gradients(replace(batch, draw=shared))
        found = self.value_and_gradient(replace(batch, draw=shared), "auto")
        expected = self.value_and_gradient(replace(batch, draw=shared.clone()))
        for mine, copies in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, copies, rtol=1e-5, atol=1e-5)

    def check_log_sums(self, batch: ContrastBatch) -> None:
        """log Σ exp(s/τ) over the negatives, as Z needs it."""
        found = make_engine(self.scores, batch).log_sums()
        expected = make_engine("plain", in_float64(batch)).log_sums()
        torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-5)
        assert not found.requires_grad

    def check_dominant_negative(self, shape: tuple[int, ...], temperature: float) -> None:
        """h of a negative rounds to 1: a query that is a drawn row, the others far below."""
        batch = make_batch(*shape, temperature=temperature, device=self.device)
        table = batch.table.clone()
        table[batch.draw[:, 21]] = batch.queries[0]  # type: ignore[index]
        batch = replace(batch, table=table)
        found = self.value_and_gradient(batch)
        expected = self.value_and_gradient(in_float64(batch), "plain")
        # Scores near 1/τ have float32 errors of 1e-7/τ, which gradients divide by τ once more.
        error = 1e-6 / temperature
        torch.testing.assert_close(found[0].double(), expected[0], rtol=1e-5, atol=error)
        torch.testing.assert_close(
            found[1].double(), expected[1], rtol=1e-5, atol=error / temperature
        )
