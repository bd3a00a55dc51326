"""Memory bank: rows, updates compared with a loop, and argument checks."""

import pytest
import torch
from torch.nn.functional import normalize

from pirl_plugin.method.bank import MemoryBank
from tests.helpers.bank_oracle import loop_update
from tests.helpers.processes import run_in_processes

pytestmark = pytest.mark.tensors


def test_rows__are_seeded_unit_vectors():
    bank = MemoryBank(70_000, 4, seed=3)  # two blocks
    torch.testing.assert_close(bank.rows.norm(dim=1), torch.ones(70_000))
    assert torch.equal(bank.rows, MemoryBank(70_000, 4, seed=3).rows)
    assert not torch.equal(bank.rows[:9], MemoryBank(9, 4, seed=4).rows)
    assert torch.equal(bank.rows[:9], MemoryBank(9, 4, seed=3).rows)
    assert bank.rows.mean().abs() < 0.01


def test_rows__match_earlier_versions():
    rows = MemoryBank(70_000, 2, seed=3).rows[[0, 65_536, 69_999]]  # from both blocks
    expected = [[-0.8342567, 0.5513762], [0.7744277, 0.6326625], [0.0897155, -0.9959674]]
    torch.testing.assert_close(rows, torch.tensor(expected))


def test_rows__ignore_torch_default_device_and_dtype():
    expected = MemoryBank(9, 4).rows
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):  # as in Lightning's configure_model
            bank = MemoryBank(9, 4)
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(bank.rows, expected)


def test_bank__refuses_out_of_range_arguments(subtests):
    for name, value in (
        ("momentum", 1.0),
        ("momentum", -0.5),
        ("momentum", float("nan")),
        ("dtype", "int8"),
    ):
        with subtests.test(name=name, value=value):
            arguments = {"num_rows": 3, "dim": 2, name: value}
            with pytest.raises(ValueError, match=f"^{name} = .*: expected"):
                MemoryBank(**arguments)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_update__matches_loop(momentum, dtype):
    bank = MemoryBank(20, 6, momentum=momentum, dtype=dtype)
    rows, visited = bank.rows.clone(), bank.visited.clone()
    for step in range(4):
        generator = torch.Generator().manual_seed(step)
        index = torch.randint(-1, 20, (12,), generator=generator)
        index[3] = index[7] = index[5]
        f = torch.randn(12, 6, generator=generator)
        loop_update(rows, visited, momentum, index, f)
        bank.update(index, f)
        torch.testing.assert_close(bank.rows, rows)
        assert torch.equal(bank.visited, visited)


def test_update__matches_hand_computation():
    bank = MemoryBank(3, 2)
    bank.rows.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))
    index = torch.tensor([2, 2, -1])
    bank.update(index, torch.tensor([[0.0, 4.0], [2.0, 0.0], [torch.nan, 0.0]]))
    # (0, 1) and (1, 0) average to (½, ½); mixed equally with (1, 0): (¾, ¼) / √0.625
    expected = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.75 / 0.625**0.5, 0.25 / 0.625**0.5]])
    torch.testing.assert_close(bank.rows, expected)
    before = bank.rows.clone()
    bank.update(torch.tensor([-1]), torch.ones(1, 2))
    bank.update(torch.tensor([], dtype=torch.int64), torch.ones(0, 2))
    assert torch.equal(bank.rows, before)


def test_move__skips_non_finite_embeddings():
    bank = MemoryBank(4, 1)
    before = bank.rows.clone()
    embeddings = torch.tensor([[torch.inf], [torch.nan], [-before[2].item()], [-torch.inf]])
    bank.move(torch.arange(4), embeddings, momentum=0.25)
    assert torch.equal(bank.rows, before * torch.tensor([[1.0], [1.0], [-1.0], [1.0]]))
    assert bank.visited.tolist() == [False, False, True, False]


def test_move__keeps_unit_norm():
    """A zero embedding has no direction, and an opposite embedding cancels the row."""
    bank = MemoryBank(3, 2)
    bank.rows.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))
    before = bank.rows.clone()
    bank.move(torch.arange(3), torch.tensor([[0.0, 0.0], [0.0, -3.0], [2.0, 0.0]]))
    assert torch.equal(bank.rows, before)
    assert bank.visited.tolist() == [False, True, True]


@pytest.mark.only_cpu
def test_bank__refuses_invalid_index_and_embeddings():
    bank = MemoryBank(3, 2)
    before = bank.rows.clone()
    for row in (-1, 3):
        with pytest.raises(ValueError, match=f"index {row} is outside the memory bank of 3 images"):
            bank.lookup(torch.tensor([row]))
    with pytest.raises(ValueError, match="index 3 is outside the memory bank"):
        bank.update(torch.tensor([1, 3]), torch.ones(2, 2))
    with pytest.raises(ValueError, match=r"expected a float tensor of shape \(2, 2\)"):
        bank.update(torch.tensor([0, 1]), torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"torch.int32 of shape \(2,\): expected an int64"):
        bank.update(torch.tensor([0, 1]).int(), torch.ones(2, 2))
    with pytest.raises(ValueError, match="index is of type list: expected an int64 tensor"):
        bank.lookup([0, 1])
    with pytest.raises(ValueError, match="index -2 is outside the memory bank"):
        bank.update(torch.tensor([1, -2]), torch.ones(2, 2))
    assert torch.equal(bank.rows, before)


@pytest.mark.parametrize("row", [-2, 3])
def test_bank__skips_out_of_range_index_on_gpu(row, device):
    if device.type == "cpu":
        pytest.skip("needs a GPU (--device cuda): a CPU refuses the index at once")
    bank = MemoryBank(3, 2)
    before = bank.rows.clone()
    bank.update(torch.tensor([1, row, -1]), torch.ones(3, 2))
    assert (bank.rows != before).any(dim=1).tolist() == [False, True, False]
    with pytest.raises(ValueError, match="index -1 is outside"):
        bank.lookup(torch.tensor([0, -1]))


def _update(rank, world_size):
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(-1, 10, (12,), generator=generator)
    f = normalize(torch.randn(12, 4, generator=generator))
    bank = MemoryBank(10, 4)
    for start, middle, end in ((0, 4, 7), (7, 9, 12)):  # two ranks have 4 and 3, then 2 and 3
        batch = slice(start, end)
        if world_size > 1:
            batch = (slice(start, middle), slice(middle, end))[rank]
        bank.update(index[batch], f[batch])
    return bank


def _rows_and_refusal(rank, world_size):
    bank = _update(rank, world_size)
    rows = bank.rows.clone()
    with pytest.raises(ValueError, match="5 images") as refused:
        bank.update(torch.arange(5), torch.ones(5, 4))
    return rows, str(refused.value)


@pytest.mark.only_cpu
def test_update__matches_joined_batch_on_all_ranks():
    results = run_in_processes(_rows_and_refusal, 2)
    expected = _update(0, 1).rows
    for rows, refusal in results:
        torch.testing.assert_close(rows, expected)
        assert torch.equal(rows, results[0][0])
        assert refusal.startswith("This rank's batch has 5 images, but the largest in the first")
