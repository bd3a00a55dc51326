"""The draw of negatives: N other images for each image, uniform over the data set (Sec. 2.1).

SplitMix64 (Steele et al. 2014), a hash of a counter, gives the random numbers. They depend only on
(seed, step, index), and are the same on every rank and device, and after a restart.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pirl_plugin.failures import Refused

_SHARED = -2  # key of a draw that the whole batch shares
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # the constant as int64
_MULTIPLIERS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)
_WORD = 0xFFFFFFFF
_MOST_IMAGES = 2**31


def draw_negatives(
    index: Tensor,
    num_images: int,
    num_negatives: int,
    seed: int,
    step: int,
    *,
    replacement: bool = True,
    per_batch: bool = False,
    exclude: Tensor | None = None,
) -> Tensor:
    """Draw the negatives of each image, never the image itself.

    Args:
        index: ``(B,)`` int64, each image's row in the data set; rows may repeat.
        num_images: |D|.
        num_negatives: N.
        seed: key of the draw.
        step: training step.
        replacement: whether a negative may be drawn twice for an image. Without replacement, each
            image sorts |D| random keys, which suits small data sets.
        per_batch: one draw for the whole batch, uniform over the images outside the batch.
        exclude: ``(B,)`` int64, for a part of a bank: the number of each image itself among the
            ``num_images``, −1 if it is not one of them; by default ``index``.

    Returns:
        ``(B, N)`` int64; with ``per_batch`` an expanded view of one draw.

    Raises:
        ValueError: there are not enough other images, or more than 2³¹; on a CPU, an index is
            outside the data set.

    Example:
        >>> import torch
        >>> negatives = draw_negatives(torch.tensor([3, 3, 0]), 10, 4, seed=0, step=0)
        >>> negatives.shape, bool((negatives[0] == negatives[1]).all())
        (torch.Size([3, 4]), True)
    """
    if exclude is None:
        exclude = index
        if index.device.type == "cpu" and ((index < 0) | (index >= num_images)).any():
            raise Refused(
                f"index = {index.tolist()[:8]}: expected rows of the data set, from 0 to "
                f"{num_images - 1}; give each image's number in the data set"
            )
    if num_images > _MOST_IMAGES:
        raise Refused(f"num_images = {num_images}: expected at most 2³¹; draw in parts")
    needed = 1 if replacement else num_negatives
    if per_batch:
        taken = exclude[exclude >= 0].unique()
        free = num_images - len(taken)
        bounds, keys = torch.full_like(index[:1], free), torch.full_like(index[:1], _SHARED)
    else:
        among = exclude >= 0
        free = num_images - 1
        bounds, keys = num_images - among.long(), index
    if free < needed:
        raise Refused(
            f"num_negatives = {num_negatives}: expected at least {needed} other images to draw "
            f"from, but there are {free} of {num_images}; lower it, or give more images"
        )
    keys = _mix(_mix(_mix(torch.full_like(keys, seed)) + step) + keys)
    if replacement:
        drawn = _integers(keys, bounds, num_negatives)
    else:
        drawn = torch.empty(len(keys), num_negatives, dtype=torch.int64, device=keys.device)
        for i in range(len(keys)):
            order = _words(keys[i : i + 1], num_images)[0]
            numbers = torch.arange(num_images, device=keys.device)
            order.masked_fill_(numbers >= bounds[i], torch.iinfo(torch.int64).max)
            drawn[i] = order.argsort()[:num_negatives]
    if per_batch:
        # The j-th image that is not taken is j + the number of taken images before it.
        before = taken - torch.arange(len(taken), device=taken.device)
        drawn = drawn + torch.searchsorted(before, drawn, right=True)
        return drawn.expand(len(index), -1)
    return drawn.add_((drawn >= exclude[:, None]) & among[:, None])  # step over the image itself


def _integers(keys: Tensor, bounds: Tensor, count: int) -> Tensor:
    """Return ``(B, count)`` integers uniform in [0, bound) for each key ``(B,)``; bound < 2³¹.

    They are ⌊u·bound / 2⁶⁴⌋ for a 64-bit word u, so the deviation from uniform is bound/2⁶⁴.
    """
    if keys.device.type == "cpu":
        from pirl_plugin.gather import fill_integers

        drawn = keys.new_empty(len(keys), count)
        fill_integers(keys.numpy(), bounds.numpy(), drawn.numpy())
        return drawn
    words, bounds = _words(keys, count), bounds[:, None]
    low = (words & _WORD).mul_(bounds).bitwise_right_shift_(32)
    high = words.bitwise_right_shift_(32).bitwise_and_(_WORD)
    return high.mul_(bounds).add_(low).bitwise_right_shift_(32)


def _words(keys: Tensor, count: int) -> Tensor:
    """Return the first ``count`` words of each key's stream: ``(B, count)`` int64."""
    counter = torch.arange(1, count + 1, device=keys.device) * _GOLDEN
    return _mix(keys[:, None] + counter)


def _mix(words: Tensor) -> Tensor:
    """Hash int64 words, in place: the finaliser of SplitMix64."""
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        words = _shift_xor(words, shift).mul_(multiplier)
    return _shift_xor(words, 31)


def _shift_xor(words: Tensor, shift: int) -> Tensor:
    """Return words ^ (words >>> shift), in place; a mask removes the sign bits of int64 shifts."""
    shifted = (words >> shift).bitwise_and_((1 << (64 - shift)) - 1)
    return words.bitwise_xor_(shifted)
