"""Draw negatives: N other images per image, uniform over the data set (Sec. 2.1).

Random numbers come from SplitMix64 (Steele et al. 2014), a hash of a counter. They depend only on
(seed, step, index), so they are the same on every rank and device, and after a restart.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from pirl_plugin.method.index_check import as_index
from pirl_plugin.system.failures import Refused

_SHARED = -2  # key for a draw shared by the batch
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # the constant as int64
# Shift and multiplier of each round of the finalizer.
_ROUNDS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64), (31, 1))
_HALF_WORD = 0xFFFFFFFF


def draw_negatives(
    index: Tensor,
    num_images: int,
    num_negatives: int,
    seed: int,
    step: int,
    *,
    replacement: bool = True,
    per_batch: bool = False,
) -> Tensor:
    """Draw negatives for each image, never the image itself.

    Args:
        index: ``(B,)`` int64, each image's number in the data set; may contain repeats.
        num_images: |D|, below 2³¹.
        num_negatives: N.
        seed: seed for the draw.
        step: training step.
        replacement: whether a negative may be drawn twice for an image. Without replacement, each
            image sorts |D| random keys, which suits small data sets.
        per_batch: whether the batch shares one draw, uniform over images outside the batch.

    Returns:
        ``(B, N)`` int64; with ``per_batch``, one draw expanded.

    Raises:
        ValueError: an argument has the wrong type or is out of range, or there are too few other
            images. Checking the index synchronizes with a GPU.

    Example:
        >>> import torch
        >>> negatives = draw_negatives(torch.tensor([3, 3, 0]), 10, 4, seed=0, step=0)
        >>> negatives.shape, bool((negatives[0] == negatives[1]).all())
        (torch.Size([3, 4]), True)
    """
    index = as_index(index)
    if ((index < 0) | (index >= num_images)).any():
        raise Refused(
            f"index = {index.tolist()[:8]}: expected image numbers from 0 to {num_images - 1}"
        )
    sizes = (num_images, num_negatives)
    if per_batch:
        return draw_for_batch(index, *sizes, seed, step, replacement)
    return draw_for_each(index, index, *sizes, seed, step, replacement)


def draw_for_each(
    index: Tensor,
    itself: Tensor,
    num_images: int,
    num_negatives: int,
    seed: int,
    step: int,
    replacement: bool,
) -> Tensor:
    """Draw separately for each image, uniform over other images: see :func:`draw_negatives`.

    The index is unchecked, so this does not synchronize with a GPU.

    Args:
        index: ``(B,)`` int64, each image's number in the data set, the key for its draw.
        itself: ``(B,)`` int64, each image's own number among ``num_images``, or −1 if it is not
            among them.
        num_images: number of images to draw from: |D|, or the size of a shard.
        num_negatives: N.
        seed: seed for the draw.
        step: training step.
        replacement: whether a negative may be drawn twice for an image.

    Returns:
        ``(B, N)`` int64.
    """
    _check_size(num_images, num_images - 1, num_negatives, replacement)
    # An image that is not among them gets the number after the last one, above all draws.
    itself = itself.masked_fill(itself < 0, num_images)
    bounds = num_images - (itself < num_images).long()
    keys = _mix(index + _stream(seed, step))
    if replacement:
        drawn = _integers(keys, bounds, num_negatives)
    else:
        drawn = index.new_empty(len(index), num_negatives)
        for i in range(len(index)):
            drawn[i] = _distinct(keys[i], bounds[i], num_images, num_negatives)
    return drawn.add_(drawn >= itself[:, None])  # skip the image itself


def draw_for_batch(
    batch: Tensor,
    num_images: int,
    num_negatives: int,
    seed: int,
    step: int,
    replacement: bool,
) -> Tensor:
    """Draw once for the batch, uniform over images outside it: see :func:`draw_negatives`.

    This synchronizes with a GPU only if the data set minus one batch may be too small, to count the
    distinct images in the batch.

    Args:
        batch: ``(B,)`` int64, images to exclude, unchecked; −1 is ignored.
        num_images: number of images to draw from: |D|, or the size of a shard.
        num_negatives: N.
        seed: seed for the draw.
        step: training step.
        replacement: whether a negative may be drawn twice.

    Returns:
        ``(B, N)`` int64, one draw expanded.
    """
    # Images to exclude, in ascending order. Repeated and missing ones become `num_images`, which no
    # draw reaches, because counting them would synchronize with a GPU.
    ordered = batch.masked_fill(batch < 0, num_images).sort().values
    repeated = pad(ordered[1:] == ordered[:-1], (1, 0))[: len(ordered)]  # empty for no image
    taken = ordered.masked_fill(repeated, num_images).sort().values
    num_free = num_images - (taken < num_images).sum(dim=0, keepdim=True)

    at_least_free = num_images - len(batch)
    if at_least_free < (1 if replacement else num_negatives):
        at_least_free = int(num_free)
    _check_size(num_images, at_least_free, num_negatives, replacement)

    key = _mix(_stream(seed, step) + _SHARED)
    keys = torch.full_like(num_free, int(key))
    if replacement:
        drawn = _integers(keys, num_free, num_negatives)
    else:
        drawn = _distinct(keys[0], num_free[0], num_images, num_negatives)[None]
    # The j-th free image is j + the number of taken images before it.
    free_before = taken - torch.arange(len(taken), device=taken.device)
    free_before = free_before.masked_fill(taken == num_images, num_images)
    drawn = drawn + torch.searchsorted(free_before, drawn, right=True)
    return drawn.expand(len(batch), -1)


def _check_size(num_images: int, num_free: int, num_negatives: int, replacement: bool) -> None:
    """Raise ``ValueError`` if there are too few other images."""
    needed = 1 if replacement else num_negatives
    if num_free < needed:
        raise Refused(
            f"num_negatives = {num_negatives}: of {num_images} images, only {num_free} can be "
            f"drawn, and the draw needs {needed}. Lower it, or use more images."
        )


def _integers(keys: Tensor, bounds: Tensor, count: int) -> Tensor:
    """Return ``(B, count)`` uniform integers in [0, bound) for each key ``(B,)``; bound < 2³¹.

    They are ⌊u·bound / 2⁶⁴⌋ for a 64-bit word u, so they deviate from uniform by bound/2⁶⁴.
    """
    if keys.device.type == "cpu":
        from pirl_plugin.method.cpu_kernels import fill_integers

        drawn = keys.new_empty(len(keys), count)
        fill_integers(keys.numpy(), bounds.numpy(), drawn.numpy())
        return drawn
    return _integers_of_tensors(keys, bounds, count)


def _integers_of_tensors(keys: Tensor, bounds: Tensor, count: int) -> Tensor:
    """Compute :func:`_integers` with torch operations, on any device."""
    words = _words(keys, count)
    bounds = bounds[:, None]
    # The product has 95 bits. Those of a word's halves have 63 each, which fit int64.
    low = (words & _HALF_WORD).mul_(bounds).bitwise_right_shift_(32)
    # Shifting int64 copies the sign bit to the left; the mask removes the copies.
    high = words.bitwise_right_shift_(32).bitwise_and_(_HALF_WORD)
    return low.addcmul_(high, bounds).bitwise_right_shift_(32)


def _distinct(key: Tensor, bound: Tensor, num_images: int, count: int) -> Tensor:
    """Return ``(count,)`` distinct integers in [0, bound), the start of a random order."""
    order = _words(key[None], num_images)[0]
    numbers = torch.arange(num_images, device=key.device)
    order.masked_fill_(numbers >= bound, torch.iinfo(torch.int64).max)
    return order.argsort()[:count]


def _words(keys: Tensor, count: int) -> Tensor:
    """Return the first ``count`` words from each key's stream: ``(B, count)`` int64."""
    counter = torch.arange(1, count + 1, device=keys.device)
    return _mix(torch.add(keys[:, None], counter, alpha=_GOLDEN))


def _stream(seed: int, step: int) -> Tensor:
    """Return a step's key, int64 on the CPU, to which image numbers are added."""
    signed = (seed + 2**63) % 2**64 - 2**63  # the int64 of the same 64 bits
    return _mix(_mix(torch.tensor(signed, device="cpu")) + step)


def _mix(words: Tensor) -> Tensor:
    """Hash int64 words in place: the finalizer of SplitMix64."""
    for shift, multiplier in _ROUNDS:
        # Shifting int64 copies the sign bit to the left; the mask removes the copies.
        shifted = (words >> shift).bitwise_and_((1 << (64 - shift)) - 1)
        words = words.bitwise_xor_(shifted).mul_(multiplier)
    return words
