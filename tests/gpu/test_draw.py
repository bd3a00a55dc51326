"""The draw made on a GPU, with tensors and in the kernel, is the CPU's to the bit."""

import pytest
import torch

from pirl_plugin import PIRLLoss, draw_negatives
from tests.helpers.gpu_oracle import ESTIMATORS, make_outputs

LARGEST = 2**31 - 1


@pytest.mark.parametrize("options", [{}, {"replacement": False}, {"per_batch": True}], ids=str)
@pytest.mark.parametrize("count", [1, 2, 37, 4096])
@pytest.mark.parametrize(("seed", "step"), [(0, 0), (3, 7), (2**40 + 5, 2**33 + 1)])
def test_draw__is_that_of_the_cpu(device, options, count, seed, step):
    num_rows = 5003 if "replacement" in options else LARGEST
    rows = torch.tensor([0, 5, 5, num_rows - 1, 4001])
    expected = draw_negatives(rows, num_rows, count, seed, step, **options)
    found = draw_negatives(rows.to(device), num_rows, count, seed, step, **options)
    assert found.device.type == device
    assert torch.equal(found.cpu(), expected)


def test_draw__is_uniform_and_leaves_the_image_out(device):
    rows = torch.arange(64 if device == "cuda" else 4, device=device)
    drawn = draw_negatives(rows, 100, 100_000, seed=1, step=2)
    assert not (drawn == rows[:, None]).any()
    shares = torch.stack([(drawn == row).double().mean() for row in range(90, 100)])
    torch.testing.assert_close(shares, torch.full_like(shares, 1 / 99), rtol=0.05, atol=0)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("count", [1, 33, 4096, 32_001])
def test_kernel__draws_what_the_cpu_draws(device, estimator, count):
    """Its result with the draw that it makes is, to the bit, its result with the CPU's."""
    if device == "cpu" and count > 100:
        pytest.skip("as the smaller ones, in Triton's interpreter")
    num_rows = LARGEST // 4096 if device == "cuda" else 301
    outcomes = []
    for given in (False, True):
        loss = PIRLLoss(
            num_rows, embedding_dim=16, num_negatives=count, estimator=estimator,
            norm_constant=1e3, scores="triton", bank={"seed": 2**35 + 3},
        ).to(device)  # fmt: skip
        loss.step = 2**33 + 9
        rows = torch.tensor([0, 7, 7, num_rows - 1])
        drawn = draw_negatives(rows, num_rows, count, 2**35 + 3, loss.step)
        outputs = make_outputs(2, len(rows), 16, device)
        value = loss(outputs, rows.to(device), drawn.to(device) if given else None)
        value.backward()
        outcomes.append(torch.stack([value.detach().expand(4, 16), *(o.grad for o in outputs)]))
    assert torch.equal(*outcomes)
