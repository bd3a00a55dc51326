"""The draw of negatives: N others for each image, uniform over the data set."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pirl_plugin.memory.philox import philox4x32, uniform_below

_SHARED = 0xFFFFFFFF  # key of a draw that the whole batch shares


@dataclass(frozen=True)
class Draw:
    """A draw that is made where it is used: for one image at a time, or inside a kernel.

    Args:
        rows: ``(B,)`` int64, each image's row in the data set.
        exclude: ``(B,)`` int64, its index among the ``num_rows``, −1 where it is not among them.
        num_rows: images to draw from.
        num_negatives: N.
        seed: key of the draw.
        step: training step.
        replacement: as of :func:`draw_negatives`.
        per_batch: as of :func:`draw_negatives`.
    """

    rows: Tensor
    exclude: Tensor
    num_rows: int
    num_negatives: int
    seed: int
    step: int
    replacement: bool = True
    per_batch: bool = False

    @property
    def in_kernel(self) -> bool:
        """Whether a kernel can make this draw: it is with replacement, one for each image."""
        return self.replacement and not self.per_batch

    def all(self) -> Tensor:
        """``(B, N)`` int64."""
        return self._of(slice(None))

    def of(self, image: int) -> Tensor:
        """``(N,)`` int64, the draw of one image of the batch; not for ``per_batch``."""
        return self._of(slice(image, image + 1))[0]

    def _of(self, images: slice) -> Tensor:
        return draw_negatives(
            self.rows[images],
            self.num_rows,
            self.num_negatives,
            self.seed,
            self.step,
            replacement=self.replacement,
            per_batch=self.per_batch,
            exclude=self.exclude[images],
        )


def draw_negatives(
    rows: Tensor,
    num_rows: int,
    num_negatives: int,
    seed: int,
    step: int,
    *,
    replacement: bool = True,
    per_batch: bool = False,
    exclude: Tensor | None = None,
) -> Tensor:
    """Draw the negatives of each image (Sec. 2.1: N per image, never the image itself).

    The draw of an image is a function of (seed, step, row) and of what it draws from: with a
    replicated bank the same at any world size, on any device and after a restart. With
    ``per_batch`` it depends on the rows of the batch too.

    Args:
        rows: ``(B,)`` int64, each image's row in the data set; may repeat.
        num_rows: |D|.
        num_negatives: N.
        seed: key of the draw.
        step: training step.
        replacement: whether one image may be drawn twice for an image. Without it each row
            sorts |D| random keys, which suits small data sets.
        per_batch: one draw for the whole batch, uniform over the images outside ``rows``.
        exclude: ``(B,)`` int64, the index of each image itself among the ``num_rows``, −1 where
            it is not among them; by default ``rows``. For a part of a bank.

    Returns:
        ``(B, N)`` int64 row numbers; with ``per_batch`` an expanded view of one draw.

    Raises:
        ValueError: there are not enough other images to draw from.

    Example:
        >>> import torch
        >>> negatives = draw_negatives(torch.tensor([3, 3, 0]), 10, 4, seed=0, step=0)
        >>> negatives.shape, bool((negatives[0] == negatives[1]).all())
        (torch.Size([3, 4]), True)
    """
    exclude = rows if exclude is None else exclude
    needed = 1 if replacement else num_negatives
    if per_batch:
        bound, free_before = _outside(exclude, num_rows)
        keys = torch.full_like(rows[:1], _SHARED)
        least = num_rows - exclude.numel()
        least = least if least >= needed else int(bound)  # the host waits for a GPU here alone
    else:
        among = (exclude >= 0)[:, None]
        bound, keys, least = num_rows - among.long(), rows, num_rows - 1
    if least < needed:
        raise ValueError(
            f"num_negatives = {num_negatives}: expected at least {needed} other images for a "
            f"draw {'with' if replacement else 'without'} replacement, and there are {least} of "
            f"{num_rows}; lower it, or give more images"
        )
    if replacement:
        drawn = _draw(keys, bound, num_negatives, seed, step)
    else:
        drawn = _draw_distinct(keys, bound, num_rows, num_negatives, seed, step)
    if per_batch:
        drawn = drawn + torch.searchsorted(free_before, drawn, right=True)
        return drawn.expand(rows.numel(), -1)
    return drawn + ((drawn >= exclude[:, None]) & among)  # step over the row itself


def _outside(taken: Tensor, num_rows: int) -> tuple[Tensor, Tensor]:
    """How many images are not taken, ``(1, 1)``, and how many of those come before each taken one.

    The second is ``(B,)``, sorted: the j-th image that is not taken is j + #{k: that[k] ≤ j}.
    Entries of repeated and negative rows, which say nothing, are ``num_rows`` and so come last.
    """
    taken = torch.where(taken >= 0, taken, num_rows).sort().values
    counts = taken < num_rows
    counts[1:] &= taken[1:] != taken[:-1]
    number = counts.cumsum(0) - 1
    free_before = torch.where(counts, taken - number, num_rows).sort().values
    return num_rows - counts.sum().view(1, 1), free_before


def _draw(rows: Tensor, bound: int | Tensor, count: int, seed: int, step: int) -> Tensor:
    """``(B, count)`` integers uniform in [0, bound), keyed on (seed, step, row).

    The bound is one number, or ``(B, 1)`` of them.
    """
    if rows.device.type == "cpu":
        from pirl_plugin.memory.draw_kernel import fill_draws

        out = torch.empty(rows.numel(), count, dtype=torch.int64)
        bounds = torch.as_tensor(bound).flatten().expand(rows.numel()).contiguous()
        fill_draws(rows.contiguous().numpy(), bounds.numpy(), seed, step, out.numpy())
        return out
    return _draw_on_device(rows, bound, count, seed, step)


def _draw_on_device(rows: Tensor, bound: int | Tensor, count: int, seed: int, step: int) -> Tensor:
    w0, w1, w2, w3 = _words(rows, (count + 1) // 2, seed, step)
    pairs = torch.stack([uniform_below(w0, w1, bound), uniform_below(w2, w3, bound)], dim=2)
    return pairs.flatten(1)[:, :count]


def _draw_distinct(
    rows: Tensor, bound: Tensor, largest: int, count: int, seed: int, step: int
) -> Tensor:
    """As ``_draw``, but distinct within a row: the order of random 62-bit keys.

    No bound is above ``largest``.
    """
    w0, w1, w2, w3 = _words(rows, (largest + 1) // 2, seed, step)
    keys = torch.stack([(w0 << 30) ^ w1, (w2 << 30) ^ w3], dim=2).flatten(1)[:, :largest]
    numbers = torch.arange(largest, device=rows.device)[None, :]
    keys = keys.masked_fill(numbers >= bound, torch.iinfo(torch.int64).max)  # sorted to the end
    return keys.argsort(dim=1)[:, :count]


def _words(
    rows: Tensor, blocks: int, seed: int, step: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four ``(B, blocks)`` random words; counter = (block, row, step), key = seed."""
    block = torch.arange(blocks, device=rows.device)[None, :]
    counter = (block, rows[:, None], step & 0xFFFFFFFF, (step >> 32) & 0xFFFFFFFF)
    return philox4x32(counter, (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF))
