"""The formulas of memory and communication against what processes hold and send."""

import subprocess
import sys

import pytest
import torch
from torch import distributed

from pirl_plugin.benchmark.scale import step_bytes, work_bytes
from pirl_plugin.losses.pirl_loss import PIRLLoss
from pirl_plugin.memory import ShardedMemoryBank
from pirl_plugin.memory.size import bank_bytes
from tests.helpers.processes import run_in_processes

ROWS, DIM, BATCH = 1001, 16, 12
_NUMBERS = 100  # bytes of a reduction that is "a few numbers"


def spread_evenly(rank, world_size):
    """Rows of a batch of which each shard holds as many, no two of different ranks equal."""
    shards = ShardedMemoryBank(ROWS, DIM).permutation.position(torch.arange(ROWS))
    shards //= -(-ROWS // world_size)
    share = BATCH // world_size
    each = [(shards == owner).nonzero()[rank * share :][:share, 0] for owner in range(world_size)]
    return torch.cat(each)


def measure(rank, world_size, placement):
    """Bytes of this rank's bank, and bytes received in a step's collectives."""
    received = [0]
    loss = PIRLLoss(
        ROWS, embedding_dim=DIM, num_negatives=5, norm_constant=10.0, bank={"placement": placement}
    )
    if world_size > 1:
        all_gather, all_reduce = distributed.all_gather, distributed.all_reduce
        all_to_all = distributed.all_to_all_single

        def counted_gather(everyone, local, **options):
            received[0] += local.nbytes * (len(everyone) - 1)
            return all_gather(everyone, local, **options)

        def counted_exchange(parts, local, lengths, sent, **options):
            others = sum(lengths) - lengths[rank]
            received[0] += others * parts[:1].nbytes
            return all_to_all(parts, local, lengths, sent, **options)

        def counted_reduce(tensor, **options):
            assert tensor.nbytes < _NUMBERS
            return all_reduce(tensor, **options)

        distributed.all_gather, distributed.all_reduce = counted_gather, counted_reduce
        distributed.all_to_all_single = counted_exchange
    output = [torch.randn(BATCH, DIM, requires_grad=True) for _ in range(2)]
    target = spread_evenly(rank, world_size)
    loss(output, target).backward()
    loss.update(target, output[-1])
    return loss.bank.rows.nbytes + loss.bank.visited.nbytes, received[0]


@pytest.mark.parametrize("placement", ["replicated", "sharded"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_scale__formulas_are_what_a_rank_holds_and_receives(ranks, placement):
    if ranks == 1:
        found = [measure(0, 1, placement)]
    else:
        found = run_in_processes(measure, ranks, placement)
    held, received = zip(*found, strict=True)
    assert held[0] == bank_bytes(ROWS, ranks, placement, DIM, "float32")
    assert set(received) == {step_bytes(ranks, BATCH, placement, DIM)}


UPDATE = """
import torch
from pirl_plugin.benchmark.memory import peak_extra_bytes
from pirl_plugin.memory import MemoryBank

bank = MemoryBank(40_000, 128)
rows, embeddings = torch.arange(16_384), torch.randn(16_384, 128)
bank.update(rows, embeddings)
print(embeddings.nbytes + peak_extra_bytes(lambda: bank.update(rows, embeddings), "cpu"))
"""


def test_scale__the_update_holds_no_more_than_is_said(monkeypatch):
    # else the C library keeps what was freed, as much as earlier calls have made it
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "1000000")
    command = [sys.executable, "-c", UPDATE]
    peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    said = work_bytes(512, 32, "replicated")
    assert 0.5 * said < int(peak) < said


def test_scale__by_hand():
    # 1e9 images on 1,024 ranks: 976,563 rows a rank, of 128 · 4 + 1 bytes: 501 MB
    assert bank_bytes(10**9, 1024, "sharded", 128, "float32") == 976_563 * 513
    # 7 others with 32 images of 8 + 512 bytes each
    assert step_bytes(8, 32, "replicated") == 7 * 32 * 520
    # a count of 8 bytes from each other, twice; and 28 of the 32 images, as they are spread, twice
    assert step_bytes(8, 32, "sharded") == 2 * 7 * 8 + 2 * 28 * 520
