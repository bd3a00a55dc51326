"""Philox4x32-10, the counter-based generator of Salmon et al. 2011, on tensors of any device.

A draw is a pure function of its key and counter: no state to save, the same numbers on every rank,
device and restart. PyTorch has no unsigned arithmetic to speak of, so 32-bit words travel in int64.
"""

from __future__ import annotations

from torch import Tensor

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def philox4x32(
    counter: tuple[Tensor, Tensor, Tensor | int, Tensor | int], key: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ten rounds of Philox4x32.

    Args:
        counter: int64 tensors of broadcastable shapes, or numbers; each word in [0, 2³²).
        key: two words in [0, 2³²).

    Returns:
        Four int64 tensors of the broadcast shape, each word uniform in [0, 2³²).
    """
    c0, c1, c2, c3 = counter[0], counter[1], *(c + counter[0] * 0 for c in counter[2:])
    k0, k1 = key
    for _ in range(10):
        high0, low0 = _wide_product(c0, _MULTIPLIERS[0])
        high1, low1 = _wide_product(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3


def uniform_below(high: Tensor, low: Tensor, bound: int | Tensor) -> Tensor:
    """Integers uniform in [0, bound) from two words each: ⌊u·bound / 2⁶⁴⌋, u = high·2³² + low.

    The deviation from uniform is bound/2⁶⁴, below 10⁻¹⁰ for any data set. ``bound`` < 2³¹.
    """
    return (high * bound + ((low * bound) >> 32)) >> 32


def _wide_product(word: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """High and low word of a 32×32-bit product; int64 wraps around, which keeps all 64 bits."""
    product = word * multiplier
    return (product >> 32) & _WORD, product & _WORD
