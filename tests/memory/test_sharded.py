"""The sharded bank: who holds what, what is drawn, and saving at one world size for another."""

import copy
import itertools
import pickle
from collections import Counter

import pytest
import torch
from scipy.stats import chisquare
from torch import distributed
from torch.utils._python_dispatch import TorchDispatchMode

from pirl_plugin.checkpoints.shards import save_shards
from pirl_plugin.losses import bank_update, inputs
from pirl_plugin.losses.engines import choice, triton
from pirl_plugin.losses.pirl_loss import PIRLLoss
from pirl_plugin.memory import MemoryBank, ShardedMemoryBank, sharded
from pirl_plugin.memory.feistel import FeistelPermutation
from tests.helpers.processes import run_in_processes

ROWS, DIM = 101, 4


def _holdings(rank, world_size):
    bank = ShardedMemoryBank(ROWS, DIM, seed=5)
    whole = MemoryBank(ROWS, DIM, seed=9).rows
    bank.fill(whole, torch.ones(ROWS).bool())
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


@pytest.mark.parametrize(("num_rows", "smallest"), [(11, 2), (12, 3), (14, 2)])
def test_shards__of_the_last_rank_may_be_smaller(num_rows, smallest, monkeypatch):
    monkeypatch.setattr(sharded, "world_size", lambda: 4)
    monkeypatch.setattr(sharded, "rank", lambda: 3)
    bank = ShardedMemoryBank(num_rows, DIM)
    assert bank.smallest_shard == len(bank.rows) == smallest


@pytest.mark.parametrize("num_rows", [9, 13])  # 3 + 3 + 3 + 0; 4 + 4 + 4 + 1
def test_shards__of_fewer_than_two_rows_are_refused(num_rows, monkeypatch):
    monkeypatch.setattr(sharded, "world_size", lambda: 4)
    with pytest.raises(ValueError, match=f"each of 4 ranks, and there are {num_rows}; set it to"):
        ShardedMemoryBank(num_rows, DIM)


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


def _copy(rank, world_size, folder):
    bank = ShardedMemoryBank(ROWS, DIM)
    bank.save(folder / "bank")
    copies = copy.deepcopy(bank), pickle.loads(pickle.dumps(bank))
    for number, each in enumerate(copies):
        each.save(folder / f"copy{number}")
    return all(torch.equal(each.rows, bank.rows) for each in copies)


def test_save__leaves_a_bank_that_can_be_copied(tmp_path):
    """Its process groups could not be pickled."""
    assert run_in_processes(_copy, 2, tmp_path) == [True, True]


def test_load__refuses_the_bank_of_another_data_set(tmp_path):
    ShardedMemoryBank(ROWS, DIM).save(tmp_path / "bank")
    with pytest.raises(ValueError, match=r"is \(101, 4\), this run's is \(102, 4\).*same data"):
        ShardedMemoryBank(ROWS + 1, DIM).load(tmp_path / "bank")


def _save_as_version_1(rank, world_size, folder):
    """What was saved before shards had a version."""
    bank = ShardedMemoryBank(ROWS, DIM, seed=2)
    bank.permutation = FeistelPermutation(ROWS)
    bank.update(torch.arange(0, ROWS, 3), torch.ones(34, DIM))
    state = bank._sharded_state()
    del state["permutation_version"]
    save_shards(state, folder, needed=1)
    return bank.lookup(torch.arange(ROWS)), bank.visited.sum()


def _load_save_and_load(rank, world_size, folder):
    bank = ShardedMemoryBank(ROWS, DIM, seed=3)
    bank.load(folder)
    bank.save(folder.with_name("again"))
    again = ShardedMemoryBank(ROWS, DIM, seed=4)
    again.load(folder.with_name("again"))
    versions = bank.permutation.version, again.permutation.version
    return again.lookup(torch.arange(ROWS)), again.visited.sum(), versions


def test_load__shards_of_version_1_keep_the_order_they_are_in(tmp_path):
    written = run_in_processes(_save_as_version_1, 2, tmp_path / "bank")
    for rows, _, versions in run_in_processes(_load_save_and_load, 3, tmp_path / "bank"):
        assert torch.equal(rows, written[0][0])
        assert versions == (1, 1)


def test_load__refuses_shards_of_a_newer_version(tmp_path):
    bank = ShardedMemoryBank(ROWS, DIM)
    bank.permutation.version = 3
    bank.save(tmp_path / "bank")
    with pytest.raises(ValueError, match=r"dealt to ranks in way 3: expected one of 1, 2; .*newer"):
        ShardedMemoryBank(ROWS, DIM).load(tmp_path / "bank")


def test_save__takes_the_name_of_a_folder(tmp_path):
    bank, again = (ShardedMemoryBank(ROWS, DIM, seed=seed) for seed in (1, 2))
    bank.update(torch.arange(3), torch.ones(3, DIM))
    bank.save(str(tmp_path / "bank"))
    again.load(str(tmp_path / "bank"))
    assert torch.equal(again.rows, bank.rows)
    assert torch.equal(again.visited, bank.visited)


_NO_KERNELS = ("promote_types", "scalar_tensor", "empty", "_local_scalar_dense", "detach")

# Today's with a sharded bank, and some more for another version of torch.
MOST_KERNELS = {
    ("nce", "plain"): 196 + 8, ("nce", "triton"): 174 + 8,
    ("info_nce", "plain"): 188 + 8, ("info_nce", "triton"): 198 + 8,
    ("nce_softmax", "plain"): 258 + 8, ("nce_softmax", "triton"): 224 + 8,
}  # fmt: skip


def _step(estimator, scores, placement):
    """Count a step's operations that are kernels on a GPU, launches of Triton's, and collectives.

    The launches do nothing; neither the values nor their gradients are those of a step.
    """
    loss = PIRLLoss(
        10_007, embedding_dim=DIM, num_negatives=50, estimator=estimator, norm_constant=5.0,
        scores=scores, bank={"placement": placement},
    )  # fmt: skip
    output = [torch.randn(6, DIM, requires_grad=True) for _ in range(2)]
    target, counts = torch.arange(6) + 6 * distributed.get_rank(), Counter()

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name = str(function).split(".")[1]
            is_kernel = not function.is_view and function.namespace == "aten"
            counts["kernels"] += is_kernel and name not in _NO_KERNELS
            counts["collectives"] += function.namespace == "c10d"
            return function(*args, **(kwargs or {}))

    def launch(result=None):
        counts["kernels"] += 1
        return result

    triton.TritonSums._run = lambda sums, kernel, *arguments: launch()
    triton.make_draw = lambda draw: launch(torch.empty(6, 50, dtype=torch.int32))
    with Count():
        loss(output, target).backward()
        loss.update(target, output[-1])
    return counts


def _steps(rank, world_size):
    """As on a GPU, which is not asked whether all is well."""
    bank_update.BankUpdate.check = lambda update: None
    inputs.check_rows = lambda rows, number: None
    choice._check_triton = lambda device, dtype: None
    cases = itertools.product(MOST_KERNELS, ("replicated", "sharded"))
    return {(case, placement): _step(*case, placement) for case, placement in cases}


@pytest.fixture(scope="module")
def steps():
    return run_in_processes(_steps, 2)


@pytest.mark.parametrize("case", MOST_KERNELS)
def test_step__takes_few_kernels(steps, case):
    for step in steps:
        assert 100 < step[case, "sharded"]["kernels"] <= MOST_KERNELS[case]


@pytest.mark.parametrize("case", MOST_KERNELS)
def test_step__sharding_adds_few_kernels_and_3_collectives(steps, case):
    for step in steps:
        added = step[case, "sharded"] - step[case, "replicated"]
        assert 20 < added["kernels"] <= 31 + 2
        assert added["collectives"] == 3


@pytest.mark.parametrize("bank_class", [MemoryBank, ShardedMemoryBank])
def test_update__refuses_a_row_outside_the_bank(bank_class):
    bank = bank_class(5, 2)
    before = bank.rows.clone()
    with pytest.raises(ValueError, match="row 9 is outside the memory bank of 5 rows"):
        bank.update(torch.tensor([9]), torch.ones(1, 2))
    assert torch.equal(bank.rows, before)
