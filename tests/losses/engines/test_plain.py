"""Scores against the bank, and the loop over rows that is their oracle."""

import pytest
import torch
from torch.nn.functional import normalize

from pirl_plugin.losses.engines.plain import bank_scores, prefers_whole_table


@pytest.mark.parametrize("num_rows", [10, 60])  # all scores of the table; the drawn rows
@pytest.mark.parametrize("shared", [False, True])
def test_scores__agree_with_a_loop_over_rows_in_value_and_gradient(num_rows, shared):
    generator = torch.Generator().manual_seed(0)
    bank = normalize(torch.randn(num_rows, 6, generator=generator, dtype=torch.float64))
    queries = torch.randn(2, 3, 6, generator=generator, dtype=torch.float64).requires_grad_()
    rows = torch.tensor([4, 0, 9])
    negatives = torch.randint(0, num_rows, (1 if shared else 3, 7), generator=generator)
    negatives = negatives.expand(3, 7)
    weights = torch.randn(2, 3, 8, generator=generator, dtype=torch.float64)

    expected = torch.stack(
        [
            torch.stack([queries[t, b] @ bank[r] / 0.07 for r in [rows[b], *negatives[b]]])
            for t in range(2)
            for b in range(3)
        ]
    ).view(2, 3, 8)
    positive, others = bank_scores(queries, bank[rows], bank, negatives, temperature=0.07)
    found = torch.cat([positive[..., None], others], dim=2)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), queries),
        torch.autograd.grad((expected * weights).sum(), queries),
    )


def test_whole_table__is_preferred_up_to_five_times_the_draw_and_64_megabytes():
    # both gradients and scores, float32: 2 · 4 bytes · 2 terms · 64 images · (rows + negatives)
    assert prefers_whole_table(2, 64, num_rows=50_000, num_negatives=15_536)  # 2^26 bytes
    assert not prefers_whole_table(2, 64, num_rows=50_001, num_negatives=15_536)
    assert not prefers_whole_table(2, 65, num_rows=50_000, num_negatives=15_536)
    assert prefers_whole_table(2, 64, num_rows=500, num_negatives=100)
    assert not prefers_whole_table(2, 64, num_rows=501, num_negatives=100)
