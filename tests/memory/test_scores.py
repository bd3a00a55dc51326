"""Scores against the bank, and the loop over rows that is their oracle."""

import torch
from torch.nn.functional import normalize

from pirl_plugin.memory import bank_scores


def test_scores__agree_with_a_loop_over_rows():
    generator = torch.Generator().manual_seed(0)
    bank = normalize(torch.randn(20, 6, generator=generator, dtype=torch.float64))
    queries = normalize(torch.randn(2, 3, 6, generator=generator, dtype=torch.float64), dim=2)
    rows = torch.tensor([4, 0, 19])
    negatives = torch.randint(0, 20, (3, 7), generator=generator)
    positive, scores = bank_scores(queries, bank, rows, negatives, temperature=0.07)
    for t in range(2):
        for b in range(3):
            torch.testing.assert_close(positive[t, b], queries[t, b] @ bank[rows[b]] / 0.07)
            for n in range(7):
                expected = queries[t, b] @ bank[negatives[b, n]] / 0.07
                torch.testing.assert_close(scores[t, b, n], expected)
