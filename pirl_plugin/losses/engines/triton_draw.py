"""The draw of negatives on a GPU: the same numbers as with tensors, in one kernel.

Checked against :func:`pirl_plugin.memory.philox.philox4x32`, which explains them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from pirl_plugin.memory.negatives import Draw

_BLOCK = 512  # counters of a program, each of two draws


@triton.jit(do_not_specialize=["bound", "seed", "step"])
def _draw_kernel(keys, exclude, draws, bound, seed, step, count, BLOCK: tl.constexpr):
    """Draws ``(B, count)``: a lane computes a counter's four words, which give two of them."""
    image = tl.program_id(0)
    counter = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    key, excluded = tl.load(keys + image), tl.load(exclude + image)
    zero, step = counter * 0, step.to(tl.int64)
    step_low, step_high = (step & 0xFFFFFFFF).to(tl.int32), (step >> 32).to(tl.int32)
    a, b, c, d = tl.philox(
        seed.to(tl.int64), counter, zero + key.to(tl.int32), zero + step_low, zero + step_high, 10
    )
    below = (bound.to(tl.int64) - (excluded >= 0).to(tl.int64)).to(tl.uint64)
    first, second = _row(a, b, below, excluded), _row(c, d, below, excluded)
    at = draws + image.to(tl.int64) * count + 2 * counter
    tl.store(at, first, mask=2 * counter < count)
    tl.store(at + 1, second, mask=2 * counter + 1 < count)


@triton.jit
def _row(high, low, below, excluded):
    """The row that two words draw, int32; see :func:`pirl_plugin.memory.philox.uniform_below`."""
    high, low = high.to(tl.uint64), low.to(tl.uint64)
    drawn = ((high * below + ((low * below) >> 32)) >> 32).to(tl.int64)
    drawn += ((drawn >= excluded) & (excluded >= 0)).to(tl.int64)  # step over the row itself
    return drawn.to(tl.int32)


def make_draw(draw: Draw) -> Tensor:
    """``(B, N)`` int32, the draw of each image; for draws that a kernel can make.

    Args:
        draw: with replacement, one for each image; on a GPU, or a CPU with Triton's
            interpreter.
    """
    keys, exclude = draw.rows.contiguous(), draw.exclude.contiguous()
    draws = torch.empty(len(keys), draw.num_negatives, dtype=torch.int32, device=keys.device)
    with torch.cuda.device_of(keys):  # else Triton launches on the current GPU
        _draw_kernel[(len(keys), triton.cdiv(draw.num_negatives, 2 * _BLOCK))](
            keys, exclude, draws, draw.num_rows, draw.seed, draw.step, draw.num_negatives,
            BLOCK=_BLOCK,
        )  # fmt: skip
    return draws
