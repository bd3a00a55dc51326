"""The memory bank: unit rows, the moving average, duplicates, invalid rows."""

import pytest
import torch
from torch.nn.functional import normalize

from pirl_plugin.memory import MemoryBank, ShardedMemoryBank
from tests.helpers.bank_oracle import loop_update


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_bank__rows_are_unit_vectors_of_the_seed(dtype):
    bank, again, other = (MemoryBank(50, 16, dtype=dtype, seed=s) for s in (1, 1, 2))
    tolerance = 1e-6 if dtype == "float32" else 1e-2
    torch.testing.assert_close(
        bank.rows.float().norm(dim=1), torch.ones(50), atol=tolerance, rtol=0
    )
    assert torch.equal(bank.rows, again.rows)
    assert not torch.equal(bank.rows, other.rows)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_update__is_the_loop(dtype, momentum):
    generator = torch.Generator().manual_seed(0)
    bank = MemoryBank(12, 8, momentum=momentum, dtype=dtype, seed=4)
    rows, visited = bank.rows.clone(), bank.visited.clone()
    for number in range(40):  # of images: 1 … 9; −1 is drawn too, and rows repeat
        batch = 1 + number % 9
        target = torch.randint(-1, 12, (batch,), generator=generator)
        embeddings = 10 * torch.randn(batch, 8, generator=generator)
        expected = loop_update(rows, visited, momentum, target, embeddings)
        found = bank.update(target, embeddings)
        tolerance = 1e-6 if dtype == "float32" else 1e-2
        torch.testing.assert_close(bank.rows, rows, rtol=0, atol=tolerance)
        assert torch.equal(bank.visited, visited)
        assert found.tolist() == pytest.approx([float(e) for e in expected], rel=1e-2)
        rows.copy_(bank.rows)  # the next step starts from the same


def test_update__by_hand():
    bank = MemoryBank(3, 2, momentum=0.5)
    bank.rows.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))
    # row 0: 0.5·(1, 0) + 0.5·(0, 1) = (0.5, 0.5), norm 0.7071, → (0.7071, 0.7071)
    norms, number = bank.update(torch.tensor([0]), torch.tensor([[0.0, 3.0]]))
    torch.testing.assert_close(
        bank.rows, torch.tensor([[0.5**0.5, 0.5**0.5], [0.0, 1.0], [1.0, 0.0]])
    )
    assert norms.item() == pytest.approx(0.5**0.5)
    assert number == 1
    assert bank.visited.tolist() == [True, False, False]


def test_update__weights_the_old_row_by_the_momentum():
    bank = MemoryBank(4, 8, momentum=0.9, seed=3)
    old = bank.rows.clone()
    new = torch.randn(1, 8, generator=torch.Generator().manual_seed(0))
    bank.update(torch.tensor([2]), new)
    expected = normalize(0.9 * old[2] + 0.1 * normalize(new[0], dim=0), dim=0)
    torch.testing.assert_close(bank.rows[2], expected)


def test_update__moves_a_repeated_row_once_whatever_the_order():
    embeddings = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    rows = torch.tensor([3, 1, 3, 3, 0])
    outcomes = []
    for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 1, 3]):
        bank = MemoryBank(6, 8)
        bank.update(rows[order], embeddings[order])
        outcomes.append(bank.rows)
    assert torch.equal(outcomes[0], outcomes[1])
    assert torch.equal(outcomes[0], outcomes[2])
    bank = MemoryBank(6, 8)
    mean = normalize(embeddings)[[0, 2, 3]].mean(dim=0)
    torch.testing.assert_close(outcomes[0][3], normalize(0.5 * bank.rows[3] + 0.5 * mean, dim=0))


def test_update__leaves_invalid_rows_out():
    bank = MemoryBank(4, 8)
    before = bank.rows.clone()
    bank.update(torch.tensor([-1, -1]), torch.randn(2, 8))
    assert torch.equal(bank.rows, before)
    bank.update(torch.tensor([-1, 2]), torch.randn(2, 8))
    assert torch.equal(bank.rows[[0, 1, 3]], before[[0, 1, 3]])
    assert not torch.equal(bank.rows[2], before[2])


def test_update__of_what_is_not_finite_moves_no_row():
    bank = MemoryBank(4, 8)
    before = bank.rows.clone()
    embeddings = torch.randn(3, 8)
    embeddings[1, 5] = torch.nan
    with pytest.raises(FloatingPointError, match=r"rows \[2\] are not finite"):
        bank.update(torch.tensor([1, 2, 3]), embeddings)
    assert torch.equal(bank.rows, before)
    bank.update(torch.tensor([1, -1, 3]), embeddings)  # an invalid row may hold anything
    assert bank.rows.isfinite().all()


def test_move__leaves_out_what_is_not_finite():
    """A GPU, which is not asked, would keep such a row for ever."""
    bank = MemoryBank(5, 2)
    before = bank.rows.clone()
    broken = torch.tensor([[torch.nan, 1.0], [torch.inf, 1.0], [3.0, 4.0]])
    norms, number = bank.move(torch.tensor([1, 2, 3]), broken)
    assert torch.equal(bank.rows[[0, 1, 2, 4]], before[[0, 1, 2, 4]])
    assert bank.visited.tolist() == [False, False, False, True, False]
    assert number == 1
    assert 0 <= norms <= 1


def test_move__by_an_embedding_of_zeros_stays_finite():
    bank = MemoryBank(3, 2, momentum=0.5)
    bank.rows.copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]))
    # row 0: 0.5·(0, 1) + 0.5·(0, 0), to unit norm; row 1: 0.5·(1, 0) + 0.5·(−1, 0) = 0
    norms, number = bank.move(torch.tensor([0, 1]), torch.tensor([[0.0, 0.0], [-2.0, 0.0]]))
    assert bank.rows.tolist() == [[0.0, 1.0], [0.0, 0.0], [0.0, 1.0]]
    assert (norms, number) == (0.5, 2)


def test_move__of_no_row_is_nothing():
    """What a rank gets where none of the batch is in its shard."""
    bank = MemoryBank(5, 2)
    before = bank.rows.clone()
    assert bank.move(torch.empty(0, dtype=torch.int64), torch.empty(0, 2)).tolist() == [0, 0]
    assert torch.equal(bank.rows, before)
    assert not bank.visited.any()


@pytest.mark.parametrize("bank_class", [MemoryBank, ShardedMemoryBank])
def test_update__refuses_int32(bank_class):
    with pytest.raises(ValueError, match=r"rows is torch.int32: expected int64, each image's row"):
        bank_class(5, 2).update(torch.tensor([1], dtype=torch.int32), torch.ones(1, 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_rows": 1}, "num_train_samples = 1: expected at least 2 images"),
        ({"momentum": 1.0}, r"bank.momentum = 1.0: expected a weight in \[0, 1\)"),
        ({"dtype": "int8"}, "bank.dtype = 'int8': expected one of float32"),
    ],
)
def test_bank__refuses_what_it_cannot_use(arguments, message):
    with pytest.raises(ValueError, match=message):
        MemoryBank(**{"num_rows": 10, "dim": 4, **arguments})


def test_state__is_loaded_to_the_bit(tmp_path):
    bank, again = MemoryBank(10, 4, seed=1), MemoryBank(10, 4, seed=2)
    bank.update(torch.tensor([3, 4]), torch.randn(2, 4))
    torch.save(bank.state_dict(), tmp_path / "bank.pt")
    again.load_state_dict(torch.load(tmp_path / "bank.pt", weights_only=True))
    embeddings = torch.randn(2, 4)
    for one in (bank, again):
        one.update(torch.tensor([4, 5]), embeddings)
    assert torch.equal(bank.rows, again.rows)
    assert torch.equal(bank.visited, again.visited)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": torch.zeros(11, 4)}, r"rows is torch\.Size\(\[11, 4\]\): expected .*\[10, 4\]"),
        ({"rows": torch.zeros(1, 4)}, r"rows is torch\.Size\(\[1, 4\]\): expected"),
        ({"weight": torch.zeros(2)}, r"Unexpected key\(s\) in state_dict: \"weight\""),
    ],
)
def test_state__of_another_bank_is_refused(change, message):
    bank = MemoryBank(10, 4)
    before = bank.rows.clone()
    with pytest.raises(RuntimeError, match=message):
        bank.load_state_dict({**MemoryBank(10, 4, seed=2).state_dict(), **change})
    if "rows" in change:
        assert torch.equal(bank.rows, before)
