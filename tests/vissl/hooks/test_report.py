"""What is reported of several ranks, as one process would report it."""

from types import SimpleNamespace

import pytest
import torch

from pirl_plugin.vissl.adapters.loss import VISSLPIRLLoss as PIRLLoss
from pirl_plugin.vissl.hooks.report import PIRLReportHook
from tests.helpers.processes import run_in_processes

ROWS, DIM = 20, 4
TARGETS = ([4, -1, 9], [1, 2, 3])  # of the ranks: five valid rows


def _report(rank, world_size, placement):
    """What a rank writes after a step, and its own terms and sums."""
    loss = PIRLLoss(ROWS, embedding_dim=DIM, num_negatives=5, bank={"placement": placement})
    generator = torch.Generator().manual_seed(rank)
    output = [torch.randn(3, DIM, generator=generator) for _ in range(2)]
    target, written = torch.tensor(TARGETS[rank]), {}
    loss([one.requires_grad_() for one in output], target)
    loss.update(target, output[-1])
    writer = SimpleNamespace(add_scalar=lambda name, value, step: written.update({name: value}))
    task = SimpleNamespace(
        loss=loss, train=True, iteration=1, config={"LOG_FREQUENCY": 1},
        hooks=[SimpleNamespace(tb_writer=writer)],
    )  # fmt: skip
    PIRLReportHook().on_update(task)
    return written, loss.last_step.terms, loss.last_step.moved


@pytest.mark.parametrize("placement", ["replicated", "sharded"])
def test_report__is_of_all_ranks(placement):
    results = run_in_processes(_report, 2, placement)
    (written, _, moved), (nothing, _, others) = results
    assert nothing == {}
    for name in ("invariance", "image"):
        mean = sum(float(terms[name]) for _, terms, _ in results) / 2
        assert written[f"PIRL/{name}"] == pytest.approx(mean)
    assert written["PIRL/rows_visited"] == pytest.approx(5 / ROWS)
    norms, number = moved if placement == "replicated" else moved + others
    assert number == 5
    assert written["PIRL/row_norm"] == pytest.approx(float(norms) / 5)
