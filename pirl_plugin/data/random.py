"""The source of randomness: one generator per (seed, epoch, image)."""

import numpy as np

_WORD = 2**64
_EPOCH_BITS = 24


def image_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """Make the generator from which every draw for one image in one epoch is taken.

    Philox is a counter-based generator: its 128-bit key alone fixes the stream, so the views of
    an image depend on neither the number of workers, nor their order, nor on what was resumed.

    Args:
        seed: the run's seed, any integer (taken modulo 2⁶⁴).
        epoch: number of the pass over the data set, in [0, 2²⁴).
        index: row of the image in the data set, in [0, 2⁴⁰).

    Returns:
        A fresh generator, about 7 µs to make.

    Raises:
        ValueError: if ``epoch`` or ``index`` is out of range.

    Example:
        >>> a, b = image_generator(0, 3, 7), image_generator(0, 3, 7)
        >>> bool(a.random() == b.random())
        True
    """
    if not 0 <= epoch < 2**_EPOCH_BITS:
        raise ValueError(f"epoch is {epoch}; expected an integer in [0, 2**{_EPOCH_BITS})")
    if not 0 <= index < 2 ** (64 - _EPOCH_BITS):
        raise ValueError(f"index is {index}; expected an integer in [0, 2**{64 - _EPOCH_BITS})")
    key = (seed % _WORD) * _WORD + (index << _EPOCH_BITS | epoch)
    return np.random.Generator(np.random.Philox(key=key))
