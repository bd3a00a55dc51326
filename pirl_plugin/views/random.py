"""The source of randomness: one generator per (seed, epoch, image)."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

from pirl_plugin.utils.value_checks import refuse

_WORD = 2**64
_EPOCH_BITS = 24


class _Key(ISeedSequence):
    """Hands Philox its key as if it were a seed's hash.

    ``Philox(key=…)`` does the same, but first asks the operating system for a seed that it does not
    use: 11 µs instead of 4.
    """

    def __init__(self, seed: int, stream: int) -> None:
        self._words = np.array([stream, seed], np.uint64)

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> NDArray[Any]:
        """The key, uint64 (2,), low word first."""
        return self._words


def image_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """Make the generator from which every draw for one image in one epoch is taken.

    Philox is a counter-based generator: its 128-bit key alone fixes the stream, so the views of
    an image depend on neither the number of workers, nor their order, nor on what was resumed.

    Args:
        seed: the run's seed, any integer (taken modulo 2⁶⁴).
        epoch: number of the pass over the data set, in [0, 2²⁴).
        index: row of the image in the data set, in [0, 2⁴⁰).

    Returns:
        A fresh generator, equal to ``Philox(key=seed·2⁶⁴ + index·2²⁴ + epoch)``.

    Raises:
        ValueError: if ``epoch`` or ``index`` is out of range, or the seed no whole number.

    Example:
        >>> a, b = image_generator(0, 3, 7), image_generator(0, 3, 7)
        >>> bool(a.random() == b.random())
        True
    """
    if not isinstance(seed, (int, np.integer)):
        refuse("seed", seed, "a whole number", "set it to such a number, as 0")
    if not isinstance(epoch, (int, np.integer)) or not 0 <= epoch < 2**_EPOCH_BITS:
        refuse("epoch", epoch, f"a whole number in [0, 2**{_EPOCH_BITS})", "count them from 0")
    # A row of a narrower type, as int32, would lose its upper bits in the shift.
    seed, epoch, index = int(seed), int(epoch), operator.index(index)
    if not 0 <= index < 2 ** (64 - _EPOCH_BITS):
        expected = f"a whole number in [0, 2**{64 - _EPOCH_BITS})"
        refuse("index", index, expected, "give the image's row in the data set")
    key = _Key(seed % _WORD, index << _EPOCH_BITS | epoch)
    return np.random.Generator(np.random.Philox(key))  # type: ignore[arg-type]
