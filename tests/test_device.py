"""A loss and bank step on a GPU, counted without one: waits, launches, memory."""

import contextlib
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch

from pirl_plugin.method import scores
from pirl_plugin.method.loss import PIRLLoss
from tests.helpers.device_costs import DeviceCosts
from tests.helpers.loss_cases import LOOPS

BATCH, NEGATIVES, ROWS, DIM = 32, 32_000, 1_281_167, 128


def step_costs(**settings):
    """Count the cost of a step: forward, backward and update."""
    loss = PIRLLoss(
        BATCH + 1, embedding_dim=DIM, num_negatives=NEGATIVES, norm_constant=2.9e6, **settings
    ).to("meta")
    bank = loss.bank
    bank.num_rows = ROWS  # avoids drawing 0.7 GB of rows
    bank.rows = torch.empty(ROWS, DIM, dtype=bank.rows.dtype, device="meta")
    bank.visited = torch.empty(ROWS, dtype=torch.bool, device="meta")
    f, g = (torch.empty(BATCH, DIM, device="meta", requires_grad=True) for _ in range(2))
    index = torch.empty(BATCH, dtype=torch.int64, device="meta")
    no_autocast = patch("torch.autocast", lambda *_, **__: contextlib.nullcontext())  # not on meta
    with no_autocast, DeviceCosts() as costs:
        loss(f, g, index).backward()
        loss.update(index, f)
    return costs


@pytest.mark.parametrize("placement", ["replicated", "sharded"])
def test_step__never_waits_in_one_process(placement, subtests):
    for draw in ("per_image", "per_batch"):
        for estimator in LOOPS:
            with subtests.test(negatives=draw, estimator=estimator):
                costs = step_costs(
                    estimator=estimator, negatives=draw, bank={"placement": placement}
                )
                assert costs.waits == 0


def test_step__launches_few_kernels_and_holds_few_rows():
    costs = step_costs()
    assert costs.launches <= 190
    assert costs.peak_bytes <= 282 * 2**20
    shared = step_costs(negatives="per_batch")
    assert shared.peak_bytes <= 60 * 2**20


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_step__with_half_precision_bank_needs_no_extra_memory(dtype):
    assert step_costs(bank={"dtype": dtype}).peak_bytes < step_costs().peak_bytes


def new(*shape):
    """Return a result from one launch."""
    return torch.zeros(*shape, device="meta")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_step__with_triton_gathers_no_rows(dtype, monkeypatch):
    kernels = SimpleNamespace(
        score_drawn=lambda table, drawn, queries: new(*queries.shape[:2], drawn.shape[1]),
        sum_drawn=lambda table, drawn, weights: new(*weights.shape[:2], table.shape[1]),
    )
    monkeypatch.setattr(scores, "triton_kernels", lambda device: kernels)
    costs = step_costs(bank={"dtype": dtype})
    assert costs.waits == 0
    assert costs.launches <= 165
    assert costs.peak_bytes <= 40 * 2**20  # scores: B·2·N·4 bytes are 8 MB
