"""The bank on a GPU moves as the loop says, and as the bank on the CPU does."""

import pytest
import torch

from pirl_plugin import MemoryBank, ShardedMemoryBank
from tests.helpers.bank_oracle import loop_update

BANKS = {"replicated": MemoryBank, "sharded": ShardedMemoryBank}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("placement", BANKS)
def test_update__is_the_loop(device, placement, dtype):
    num_rows, dim, largest = (400, 128, 512) if device == "cuda" else (12, 8, 9)
    bank = BANKS[placement](num_rows, dim, momentum=0.5, dtype=dtype, seed=4).to(device)
    everything = torch.arange(num_rows, device=device)
    rows, visited = bank.lookup(everything).cpu(), torch.zeros(num_rows, dtype=torch.bool)
    for batch in (1, 2, largest, largest // 2 + 1):  # rows repeat; −1 is drawn too
        target = torch.randint(-1, num_rows, (batch,))
        embeddings = 10 * torch.randn(batch, dim)
        expected = loop_update(rows, visited, 0.5, target, embeddings)
        found = bank.update(target.to(device), embeddings.to(device))
        tolerance = 1e-6 if dtype == "float32" else 1e-2
        moved = bank.lookup(everything).cpu()
        torch.testing.assert_close(moved, rows, rtol=0, atol=tolerance)
        assert found.tolist() == pytest.approx([float(e) for e in expected], rel=1e-2)
        assert int(bank.visited.sum()) == int(visited.sum())
        rows.copy_(moved)  # the next step starts from the same


def test_update__leaves_a_batch_without_valid_rows_alone(device):
    bank = MemoryBank(50, 16).to(device)
    before = bank.rows.clone()
    bank.update(torch.full((7,), -1, device=device), torch.randn(7, 16, device=device))
    assert torch.equal(bank.rows, before)
    assert not bank.visited.any()


def test_update__does_not_depend_on_the_order(device):
    rows = torch.randint(20, (64,), device=device)
    embeddings = torch.randn(64, 32, device=device)
    outcomes = []
    for _ in range(4):
        bank = MemoryBank(20, 32).to(device)
        order = torch.randperm(64, device=device)
        bank.update(rows[order], embeddings[order])
        outcomes.append(bank.rows)
    assert all(torch.equal(outcome, outcomes[0]) for outcome in outcomes)


def test_state__moves_between_devices_to_the_bit(device, tmp_path):
    bank = MemoryBank(30, 16, seed=1).to(device)
    bank.update(torch.tensor([3, 4], device=device), torch.randn(2, 16, device=device))
    torch.save(bank.state_dict(), tmp_path / "bank.pt")
    again = MemoryBank(30, 16, seed=2)
    again.load_state_dict(torch.load(tmp_path / "bank.pt", map_location="cpu", weights_only=True))
    assert torch.equal(again.rows, bank.rows.cpu())
    assert torch.equal(again.visited, bank.visited.cpu())
