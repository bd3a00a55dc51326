"""Sharded memory bank: lookup, updates and saving match a replicated bank."""

import pytest
import torch

from pirl_plugin.method.bank import MemoryBank
from pirl_plugin.method.loss import PIRLLoss
from pirl_plugin.method.sharded_bank import ShardedMemoryBank
from pirl_plugin.system.ranks import rank, world_size
from tests.helpers.processes import run_in_processes

ROWS, DIM = 70_001, 4  # two blocks of initial rows, not a multiple of the ranks


def moved(bank, mine):
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(-1, 30, (12,), generator=generator)
    bank.update(index[mine], torch.randn(12, DIM, generator=generator)[mine])
    return bank


def _work(place, ranks, folder):
    """Make, move, save and reload a bank; return what this rank sees."""
    bank = moved(ShardedMemoryBank(ROWS, DIM), slice(place * 5, 12 if place == 1 else 5))
    asked = torch.arange(place, 40, 3)
    seen = {"asked": asked, "found": bank.lookup(asked)}
    found = bank.local_index(torch.arange(6))
    assert found.tolist() == ([0, -1, 1, -1, 2, -1] if place == 0 else [-1, 0, -1, 1, -1, 2])
    seen["checksums"] = bank.save(folder)
    again = ShardedMemoryBank(ROWS, DIM, seed=1)
    again.load(folder, seen["checksums"])
    assert torch.equal(again.rows, bank.rows)
    assert torch.equal(again.visited, bank.visited)
    return seen


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    return folder, run_in_processes(_work, 2, str(folder))


@pytest.fixture(scope="module")
def expected():
    return moved(MemoryBank(ROWS, DIM), slice(0, 12))


def test_ranks__match_replicated_bank(shards, expected):
    _, results = shards
    for seen in results:
        torch.testing.assert_close(seen["found"], expected.rows[seen["asked"]])
        assert seen["checksums"] == results[0]["checksums"]
        assert sorted(seen["checksums"]) == ["rank_0_of_2.torch", "rank_1_of_2.torch"]


def _load(place, ranks, folder):
    bank = ShardedMemoryBank(ROWS, DIM, seed=1)
    bank.load(folder)
    return bank.lookup(torch.arange(ROWS)), int(bank.visited.sum()), (rank(), world_size())


def test_load__accepts_different_number_of_ranks(shards, expected):
    folder, _ = shards
    for results in ([_load(0, 1, folder)], run_in_processes(_load, 3, str(folder))):
        assert sum(visited for _, visited, _ in results) == expected.visited.sum()
        for rows, _, _ in results:
            torch.testing.assert_close(rows, expected.rows)


def test_load__refuses_different_or_missing_files(shards, tmp_path):
    folder, _ = shards
    with pytest.raises(ValueError, match="70001 images, and this one has 50"):
        ShardedMemoryBank(50, DIM).load(folder)
    (tmp_path / "rank_0_of_2.torch").write_bytes((folder / "rank_0_of_2.torch").read_bytes())
    with pytest.raises(ValueError, match="have 35001 of the 70001 memory bank rows"):
        ShardedMemoryBank(ROWS, DIM).load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"No such file .*rank_1_of_2\.torch"):
        ShardedMemoryBank(ROWS, DIM).load(tmp_path, {"rank_1_of_2.torch": ""})


@pytest.mark.parametrize("method", ["update", "fill_bank"])
def test_bank__is_unusable_until_shards_are_loaded(method, tmp_path):
    settings = {"embedding_dim": 4, "num_negatives": 8, "bank": {"placement": "sharded"}}
    index, f = torch.arange(3), torch.randn(3, 4)
    stopped = PIRLLoss(20, **settings)
    getattr(stopped, method)(index, f)
    stopped.bank.save(tmp_path)
    resumed = PIRLLoss(20, **settings)
    resumed.load_state_dict(stopped.state_dict())
    for use in (
        lambda: resumed(f, f, index),
        lambda: resumed.update(index, f),
        lambda: resumed.bank.save(tmp_path),
    ):
        with pytest.raises(RuntimeError, match="shards were not loaded"):
            use()
    resumed.bank.load(tmp_path)
    assert torch.equal(resumed.bank.rows, stopped.bank.rows)
