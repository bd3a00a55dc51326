"""Blockwise scores compared with all scores at once, in float64, with gradients."""

import pytest
import torch
from torch.nn.functional import normalize

from pirl_plugin.method import scores
from pirl_plugin.method.estimators import info_nce, nce_softmax
from pirl_plugin.method.scores import BankScores, gather_rows, sum_in_parts, sum_rows

pytestmark = pytest.mark.tensors


def make(terms=2, batch=7, dim=16, rows=60, count=33, dtype=torch.float32, shared=False):
    generator = torch.Generator().manual_seed(rows)
    table = normalize(torch.randn(rows, dim, generator=generator)).to(dtype)
    queries = normalize(torch.randn(batch, terms, dim, generator=generator), dim=2)
    positives = table[torch.randint(rows, (batch,), generator=generator)]
    drawn = torch.randint(rows, (batch, count), generator=generator)
    drawn = drawn[:1].expand(batch, -1) if shared else drawn
    return BankScores(queries.requires_grad_(), positives, table, drawn, 0.07)


def at_once(contrast, estimator):
    queries = contrast.queries.detach().double().requires_grad_()
    rows = contrast.table.double()[contrast.drawn]  # B×N×D
    positive = torch.einsum("btd,bd->bt", queries, contrast.positives.double()) / 0.07
    negatives = torch.einsum("btd,bnd->btn", queries, rows) / 0.07
    value = torch.stack([estimator(p, n) for p, n in zip(positive, negatives, strict=True)])
    return queries, value, negatives


@pytest.mark.parametrize(
    ("most", "estimator", "dtype"),
    [
        (1, nce_softmax, torch.float32),  # block size in bytes: one image
        (10_000, info_nce, torch.float32),  # several images
        (10_000, nce_softmax, torch.bfloat16),
        (2**24, info_nce, torch.float16),  # all images
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_estimate__matches_all_scores_at_once(estimator, most, dtype, shared, monkeypatch):
    monkeypatch.setitem(scores._MOST_BYTES, "cpu", most)
    contrast = make(dtype=dtype, shared=shared)
    found = contrast.estimate(estimator)
    queries, expected, negatives = at_once(contrast, estimator)
    torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=2e-6)
    weights = torch.linspace(0.5, 2, found.numel()).view_as(found)
    (mine,) = torch.autograd.grad((found * weights).sum(), contrast.queries)
    (theirs,) = torch.autograd.grad((expected * weights).sum(), queries)
    error = (mine - theirs).abs().max() / theirs.abs().max()
    assert error < 2e-6
    valid = torch.arange(7) != 3
    total, number = contrast.sum_of_exponentials(valid)
    torch.testing.assert_close(total, negatives[valid].exp().sum(), rtol=1e-5, atol=0)
    assert number == 2 * 6 * 33


@pytest.mark.parametrize("batch", [0, 1])
def test_estimate__accepts_small_batches(batch):
    contrast = make(batch=batch)
    value = contrast.estimate(info_nce)
    assert value.shape == (batch, 2)
    value.sum().backward()
    assert contrast.queries.grad.shape == (batch, 2, 16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_gather__matches_index_select(dtype):
    table = torch.randn(50, 24).to(dtype)
    for count in (0, 1, 100):
        index = torch.randint(50, (count,))
        for dtype_of_result in (dtype, torch.float64):
            out = gather_rows(table, index, torch.empty(count, 24, dtype=dtype_of_result))
            assert torch.equal(out, table[index].to(dtype_of_result)), count


@pytest.mark.parametrize("count", [1, 63, 64, 96, 4096])
def test_sum_in_parts__matches_sum(count):
    generator = torch.Generator().manual_seed(0)
    # The number of parts must divide the rows, but need not divide the 48 values in a row.
    rows = torch.randn(3, count, 48, generator=generator).double()
    weights = torch.randn(3, 2, count, generator=generator).double()
    torch.testing.assert_close(sum_in_parts(rows, weights), weights @ rows)


@pytest.mark.only_cpu  # a GPU chooses its own partial sums and is off by 3e-5
def test_sum_rows__is_accurate_for_many_rows():
    """Adding 0.1 to itself 100,000 times in float32 has a relative error of 1e-4."""
    rows = torch.full((1, 100_000, 4), 0.1)
    sums = sum_rows(rows, torch.ones(1, 2, 100_000))
    torch.testing.assert_close(sums, torch.full((1, 2, 4), 10_000.0), rtol=3e-6, atol=0)
