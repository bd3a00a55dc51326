"""The permutations that deal rows to ranks: bijections, which spread neighbours."""

import pytest
import torch
from scipy.stats import chisquare
from torch.utils._python_dispatch import TorchDispatchMode

from pirl_plugin.memory.feistel import FeistelPermutation
from pirl_plugin.memory.permutation import RowPermutation

SIZES = [2, 3, 10, 101, 4096, 100_003]


@pytest.mark.parametrize("num_rows", SIZES)
@pytest.mark.parametrize("kind", [RowPermutation, FeistelPermutation])
def test_permutation__is_a_bijection_that_spreads_neighbours(kind, num_rows):
    positions = kind(num_rows).position(torch.arange(num_rows))
    assert torch.equal(positions.sort().values, torch.arange(num_rows))
    if num_rows > 1000:
        first = positions[: num_rows // 10]  # the first tenth, as one class would be
        counts = torch.histc(first.float(), bins=8, min=0, max=num_rows)
        assert chisquare(counts.numpy()).pvalue > 1e-3


@pytest.mark.parametrize("num_rows", [1_281_167, 100_000_000])
def test_classes__are_spread_evenly_over_shards(num_rows):
    """1,300 rows, 162.5 a shard of 8: the classes of ImageNet."""
    firsts = torch.arange(0, 1_281_167 - 1300, 1300)
    positions = RowPermutation(num_rows).position(firsts[:, None] + torch.arange(1300))
    shards = positions // -(-num_rows // 8)
    counts = torch.zeros(len(firsts), 8).scatter_add_(1, shards, torch.ones(shards.shape))
    assert counts.min() >= 159
    assert counts.max() <= 167


def test_positions__are_exact_for_the_most_rows_there_may_be():
    num_rows = 2**31
    permutation = RowPermutation(num_rows)
    for row in (0, 1, num_rows // 2, num_rows - 1):
        found = int(permutation.position(torch.tensor(row)))
        assert found == row * permutation.multiplier % num_rows  # without a bound in Python
    with pytest.raises(ValueError, match="= 2147483649: expected at most 2147483648"):
        RowPermutation(num_rows + 1)


def test_position__takes_two_operations():
    permutation, rows, number = RowPermutation(100), torch.arange(7), [0]

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            number[0] += 1
            return function(*args, **(kwargs or {}))

    with Count():
        permutation.position(rows)
    assert number == [2]


def test_feistel__with_another_seed_is_another():
    first, other = (FeistelPermutation(4096, seed).position(torch.arange(4096)) for seed in (3, 4))
    assert (first == other).float().mean() < 0.01
