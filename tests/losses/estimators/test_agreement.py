"""Both forms of every estimator agree, in every engine: value, gradient, half rows, shared draw."""

import pytest
import torch

from pirl_plugin.losses.engines import blocked
from pirl_plugin.losses.engines import triton as triton_engine
from pirl_plugin.losses.estimators import ESTIMATORS, get_estimator
from tests.helpers.decoupled import Decoupled
from tests.helpers.estimator_tester import EstimatorTester, make_batch

SHAPES = [  # terms, batch, dim, rows, negatives
    (2, 3, 128, 60, 37),
    (1, 1, 16, 9, 1),
    (3, 2, 20, 4, 70),  # rows repeat; no size divides a block's
    (2, 5, 6, 500, 130),
]


@pytest.fixture(params=[*ESTIMATORS, "dcl"])
def estimator(request):
    return Decoupled() if request.param == "dcl" else get_estimator(request.param)


@pytest.fixture(params=["plain", "blocked", "triton"])
def tester(request, estimator, monkeypatch):
    """Blocks and tiles are so small that these shapes need several."""
    monkeypatch.setattr(blocked, "_BLOCK", 16)
    monkeypatch.setattr(triton_engine, "_TILE", 4 * 128)
    monkeypatch.setattr(triton_engine, "_PROGRAMS", 16)
    return EstimatorTester(estimator, request.param)


@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients__are_those_of_the_equation(tester, shape):
    tester.check_values_and_gradients(make_batch(*shape, device=tester.device))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_rows__are_read_as_they_are(tester, dtype):
    tester.check_half_rows(make_batch(2, 3, 32, 50, 90, device=tester.device), dtype)


def test_shared_draw__is_as_its_copies(tester):
    tester.check_shared_draw(make_batch(2, 4, 16, 80, 60, device=tester.device))


def test_log_sums__are_those_of_all_scores(tester):
    tester.check_log_sums(make_batch(2, 3, 16, 80, 60, device=tester.device))


@pytest.mark.parametrize("temperature", [0.03, 0.01])
def test_one_negative__may_take_almost_all_of_the_softmax(tester, temperature):
    tester.check_dominant_negative((2, 3, 16, 80, 60), temperature)


def test_nce_softmax__reads_each_row_once_where_no_negative_stands_out(monkeypatch):
    """Thousands of rows with h near 1 / N: what is read again is few of them."""
    batch = make_batch(2, 2, 128, 12_000, 9000, temperature=0.2)
    read = []
    gather = blocked.gather_rows
    monkeypatch.setattr(
        blocked,
        "gather_rows",
        lambda t, index, out: read.append(len(index)) or gather(t, index, out),
    )
    again = []
    read_again = blocked.KeptSums._again
    monkeypatch.setattr(
        blocked.KeptSums, "_again", lambda s, n: again.append(len(n)) or read_again(s, n)
    )
    EstimatorTester(get_estimator("nce_softmax"), "blocked").check_values_and_gradients(batch)
    assert sum(read) == 2 * 9000
    assert sum(again) < 2 * 2 * 90
