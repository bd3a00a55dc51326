"""A loss over a small bank, and embeddings for it."""

import pytest
import torch

from pirl_plugin.losses.pirl_loss import PIRLLoss

ROWS, DIM, NEGATIVES = 40, 8, 11
SETTINGS = {"num_train_samples": ROWS, "embedding_dim": DIM, "num_negatives": NEGATIVES}


@pytest.fixture(params=["plain", "blocked"], autouse=True)
def every_form(request, monkeypatch):
    """Every test here, with all scores at once and with sums over the drawn rows."""
    monkeypatch.setitem(SETTINGS, "scores", request.param)


def make_loss(**settings):
    return PIRLLoss(**{**SETTINGS, **settings})


def embeddings(batch=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(batch, DIM, generator=generator, dtype=dtype).requires_grad_() for _ in range(2)
    ]
