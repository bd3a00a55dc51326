"""The sharded bank: who holds what, what is drawn, and saving at one world size for another."""

import pytest
import torch
from scipy.stats import chisquare

from pirl_plugin.memory import MemoryBank, ShardedMemoryBank
from pirl_plugin.memory.permutation import RowPermutation
from tests.helpers.processes import run_in_processes

ROWS, DIM = 101, 4


@pytest.mark.parametrize("num_rows", [2, 3, 10, 101, 4096, 100_003])
def test_permutation__is_a_bijection_that_spreads_neighbours(num_rows):
    positions = RowPermutation(num_rows, seed=3).position(torch.arange(num_rows))
    assert torch.equal(positions.sort().values, torch.arange(num_rows))
    if num_rows > 1000:
        first = positions[: num_rows // 10]  # the first tenth, as one class would be
        counts = torch.histc(first.float(), bins=8, min=0, max=num_rows)
        assert chisquare(counts.numpy()).pvalue > 1e-3
        other = RowPermutation(num_rows, seed=4).position(torch.arange(num_rows))
        assert (positions == other).float().mean() < 0.01


def _holdings(rank, world_size):
    bank = ShardedMemoryBank(ROWS, DIM, seed=5)
    whole = MemoryBank(ROWS, DIM, seed=9).rows
    bank.fill(whole)
    mine = torch.tensor([0, 100, 7, 7]) + 3 * torch.tensor([rank, -rank, 0, 0])
    fetched = bank.lookup(mine)
    assert torch.equal(fetched, whole[mine])
    return bank.rows.shape[0], bank.rows.element_size() * bank.rows.numel()


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_shards__hold_a_share_each_and_look_up_those_of_others(world_size):
    if world_size == 1:
        holdings = [_holdings(0, 1)]
    else:
        holdings = run_in_processes(_holdings, world_size)
    assert sum(rows for rows, _ in holdings) == ROWS
    share = -(-ROWS // world_size)
    assert max(size for _, size in holdings) == share * DIM * 4  # memory falls as 1 / W


def _draws(rank, world_size):
    bank = ShardedMemoryBank(ROWS, DIM)
    bank.rows.copy_(torch.arange(bank.start, bank.stop)[:, None].expand(-1, DIM))  # the position
    rows = torch.arange(0, ROWS, 10)
    drawn = torch.cat([bank.draw(rows, 300, seed=1, step=step).all() for step in range(40)], dim=1)
    positions = bank.rows[:, 0][drawn].long()  # of the drawn rows, N above the shard's size
    return positions, bank.permutation.position(rows), (bank.start, bank.stop)


def test_draw__is_uniform_over_the_ranks_shard_without_the_row_itself():
    for positions, self_positions, (start, stop) in run_in_processes(_draws, 2):
        assert not (positions == self_positions[:, None]).any()
        assert positions.min() >= start
        assert positions.max() < stop
        for row, self_position in zip(positions, self_positions, strict=True):
            counts = (row - start).bincount(minlength=stop - start)
            others = torch.ones(stop - start, dtype=torch.bool)
            if start <= self_position < stop:
                others[self_position - start] = False
            assert chisquare(counts[others].numpy()).pvalue > 1e-5


def _save(rank, world_size, folder):
    bank = ShardedMemoryBank(ROWS, DIM, seed=2)
    bank.update(torch.arange(0, ROWS, 3), torch.ones(34, DIM))
    bank.save(folder)
    return bank.lookup(torch.arange(ROWS)), bank.visited.sum()


def _load(rank, world_size, folder):
    bank = ShardedMemoryBank(ROWS, DIM, seed=3)  # another seed than the writers'
    bank.load(folder)
    return bank.lookup(torch.arange(ROWS)), bank.visited.sum()


@pytest.mark.parametrize(("writers", "readers"), [(2, 3), (3, 1), (1, 2)])
def test_save__loads_at_another_world_size(writers, readers, tmp_path):
    folder = tmp_path / "bank"
    run = lambda f, n: run_in_processes(f, n, folder) if n > 1 else [f(0, 1, folder)]  # noqa: E731
    written, read = run(_save, writers), run(_load, readers)
    assert torch.equal(read[0][0], written[0][0])
    assert sum(visited for _, visited in read) == sum(visited for _, visited in written) == 34


def test_load__refuses_the_bank_of_another_data_set(tmp_path):
    ShardedMemoryBank(ROWS, DIM).save(tmp_path / "bank")
    with pytest.raises(ValueError, match=r"is \(101, 4\), this run's is \(102, 4\).*same data"):
        ShardedMemoryBank(ROWS + 1, DIM).load(tmp_path / "bank")
