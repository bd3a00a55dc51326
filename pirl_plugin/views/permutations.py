"""The jigsaw's permutation set, from 1 to all 9! = 362,880 orders (Sec. 4.2)."""

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.system.failures import check, is_whole

GREEDY_LIMIT = 10_000
"""Largest set that is chosen by Hamming distance; see ``PermutationSet``."""

_Orders = NDArray[np.int16]
_POOL = 1024
_LISTED = 9  # largest number of patches for a list of all orders
_LEAST_YIELD = 0.005  # share of the set so far; a pool that adds less has few candidates left


class PermutationSet:
    """A set of orders of the patches, and uniform draws from it.

    ``None`` means all orders; they are drawn without a list. Size and ``num_patches`` determine a
    finite set. Up to ``GREEDY_LIMIT`` orders are chosen greedily for a large Hamming distance, as
    in Noroozi & Favaro 2016 (arXiv 1603.09246, Alg. 1), but from random candidates instead of a
    list of all n!. In larger sets, nearly every greedy choice would have the smallest possible
    distance, so their orders are only distinct and uniform.

    Args:
        num_permutations: 1 … num_patches!, or None for all orders.
        num_patches: length of an order.

    Attributes:
        orders: int16 (num_permutations, num_patches), or None for all orders.

    Raises:
        ValueError: ``num_permutations`` is out of range.

    Example:
        >>> PermutationSet(100).orders.shape
        (100, 9)
    """

    def __init__(self, num_permutations: int | None = None, num_patches: int = 9) -> None:
        most = math.factorial(num_patches)
        self.num_patches = num_patches
        self.orders: _Orders | None = None
        if num_permutations is None:
            return
        fits = is_whole(num_permutations) and 1 <= num_permutations <= most
        expected = f"a whole number from 1 to {most} for {num_patches} patches, or null for all"
        check("num_permutations", num_permutations, fits, f"{expected} orders")
        rng = np.random.default_rng(0)
        greedy = num_permutations if num_permutations <= GREEDY_LIMIT else 0
        chosen = _spread(greedy, num_patches, rng)
        self.orders = _fill_up(chosen, num_permutations, num_patches, rng)

    def draw(self, rng: np.random.Generator) -> tuple[int, NDArray[np.int64]]:
        """Draw one order uniformly.

        Args:
            rng: generator to draw from.

        Returns:
            The order's number in ``orders`` (−1 if the set has all orders), and the order, int64
            (num_patches,): position i shows patch ``order[i]``.
        """
        if self.orders is None:
            return -1, rng.permutation(self.num_patches)
        number = int(rng.integers(len(self.orders)))
        return number, self.orders[number].astype(np.int64)


def _spread(size: int, num_patches: int, rng: np.random.Generator) -> _Orders:
    """Choose up to ``size`` orders greedily; lower the required distance if candidates run out.

    The product of two one-hot codes is the number of equal places in their orders. So one matrix
    product compares a pool with all chosen orders. Distinct orders differ in at least two places,
    so a required distance below 3 has no effect, and the choice stops there.

    Returns:
        int16 (at most size, num_patches).
    """
    codes = np.zeros((size, num_patches * num_patches), np.float32)
    orders: _Orders = np.zeros((size, num_patches), np.int16)
    count = 0
    agree = 0  # places in which an order may equal a chosen one
    while count < size and agree <= num_patches - 3:
        # Random candidates that are far enough from all chosen orders.
        pool = rng.permuted(np.tile(np.arange(num_patches, dtype=np.int16), (_POOL, 1)), axis=1)
        pool_codes = np.eye(num_patches, dtype=np.float32)[pool].reshape(_POOL, -1)
        far_from_chosen = (pool_codes @ codes[:count].T).max(axis=1, initial=0) <= agree
        pool = pool[far_from_chosen]
        pool_codes = pool_codes[far_from_chosen]
        # Take them one by one; each leaves out the candidates that are too near to it.
        far_from_each_other = pool_codes @ pool_codes.T <= agree
        is_candidate = np.ones(len(pool), bool)
        num_new = 0
        while is_candidate.any() and count < size:
            pick = int(is_candidate.argmax())
            orders[count] = pool[pick]
            codes[count] = pool_codes[pick]
            is_candidate &= far_from_each_other[pick]
            count += 1
            num_new += 1
        if num_new <= _LEAST_YIELD * count:  # few orders are left at this distance
            agree += 1
    return orders[:count]


def _fill_up(chosen: _Orders, size: int, num_patches: int, rng: np.random.Generator) -> _Orders:
    """Add distinct uniform orders to ``chosen`` until there are ``size``."""
    if len(chosen) == size:
        return chosen
    if num_patches <= _LISTED:
        listed = list(itertools.permutations(range(num_patches)))
        pool = rng.permutation(np.array(listed, np.int16))
    else:  # there are so many orders that few of the random ones are equal
        pool = rng.permuted(np.tile(np.arange(num_patches, dtype=np.int16), (2 * size, 1)), axis=1)
    candidates = np.concatenate([chosen, pool])
    # The first place of each order: the chosen ones stay first, and repetitions go.
    _, first = np.unique(candidates, axis=0, return_index=True)
    return candidates[np.sort(first)[:size]]
