"""The formulas of memory and communication against what processes hold and send.

What is sent is counted as the collectives are meant, a reduce-scatter where gloo, which has none,
reduces everything.
"""

import pytest
import torch
from torch import distributed

from pirl_plugin.benchmark.memory import peak_extra_bytes
from pirl_plugin.benchmark.scale import bank_bytes, step_bytes, work_bytes
from pirl_plugin.losses.pirl_loss import PIRLLoss
from pirl_plugin.memory import MemoryBank
from pirl_plugin.utils.distributed import gather
from tests.helpers.processes import run_in_processes

ROWS, DIM, BATCH = 1001, 16, 6
_NUMBERS = 100  # bytes of a collective that is "a few numbers"


def measure(rank, world_size, placement):
    """Bytes of this rank's bank, and bytes received in a step's collectives."""
    received = [0]

    def count(tensor, times):
        if tensor.nbytes > _NUMBERS or tensor.dtype == torch.int64:
            received[0] += tensor.nbytes * times

    loss = PIRLLoss(
        ROWS, embedding_dim=DIM, num_negatives=5, norm_constant=10.0, bank={"placement": placement}
    )
    if world_size > 1:
        all_gather, all_reduce = distributed.all_gather, distributed.all_reduce

        def counted_gather(everyone, local, **options):
            count(local, len(everyone) - 1)
            return all_gather(everyone, local, **options)

        def counted_reduce(tensor, **options):  # gloo's stand-in for a reduce-scatter
            count(tensor[: len(tensor) // world_size] if tensor.ndim else tensor, world_size - 1)
            return all_reduce(tensor, **options)

        distributed.all_gather, distributed.all_reduce = counted_gather, counted_reduce
    output = [torch.randn(BATCH, DIM, requires_grad=True) for _ in range(2)]
    target = torch.arange(BATCH) + rank * BATCH
    loss(output, target).backward()
    loss.bank.update(gather(target), gather(output[-1].detach()))
    return sum(buffer.nbytes for buffer in loss.bank.buffers()), received[0]


@pytest.mark.parametrize("placement", ["replicated", "sharded"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_scale__formulas_are_what_a_rank_holds_and_receives(ranks, placement):
    if ranks == 1:
        found = [measure(0, 1, placement)]
    else:
        found = run_in_processes(measure, ranks, placement)
    held, received = zip(*found, strict=True)
    assert held[0] == bank_bytes(ROWS, ranks, placement, DIM)
    assert set(received) == {step_bytes(ranks, BATCH, placement, DIM)}


def test_scale__the_update_holds_no_more_than_is_said():
    bank = MemoryBank(40_000, 128)
    rows, embeddings = torch.arange(16_384), torch.randn(16_384, 128)
    bank.update(rows, embeddings)
    peak = peak_extra_bytes(lambda: bank.update(rows, embeddings), "cpu")
    said = work_bytes(512, 32)
    assert 0.5 * said < peak < said


def test_scale__by_hand():
    # 1e9 images on 1,024 ranks: 976,563 rows a rank, of 128 · 4 + 1 bytes: 501 MB
    assert bank_bytes(10**9, 1024, "sharded") == 976_563 * 513
    # 7 others with 32 images of 8 + 512 bytes each
    assert step_bytes(8, 32, "replicated") == 7 * 32 * 520
