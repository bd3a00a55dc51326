"""Gaussian blur of views in compiled loops, with PIL's arithmetic (BoxBlur.c): bit for bit.

PIL blurs by three box filters along rows and then three along columns, each rounded to bytes. The
width of a box is not an integer: its outermost pixels have a smaller weight, in 24-bit fixed
point. Pixels beyond the border repeat it.

Source: Gwosdek et al. 2011, Theoretical Foundations of Gaussian Convolution by Extended Box
Filtering, as PIL uses it.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from pirl_plugin.utils.numba import compiled

_jit = numba.njit(nogil=True, error_model="numpy")
_PASSES = 3
_ONE = 1 << 24
_HALF, _SHIFT = np.uint32(1 << 23), np.uint32(24)


def box_radii(sigmas: NDArray[np.float32]) -> NDArray[np.float32]:
    """Radius of the box filter, three passes of which have the variance of a Gaussian.

    Args:
        sigmas: float32 (n,), pixels.

    Returns:
        float32 (n,), pixels; not whole numbers.
    """
    variance = (sigmas.astype(np.float64) ** 2 / _PASSES).astype(np.float32).astype(np.float64)
    length = np.sqrt(12.0 * variance + 1.0).astype(np.float32)
    whole = np.floor((length.astype(np.float64) - 1.0) / 2.0)
    part = ((2 * whole + 1) * (whole * (whole + 1) - 3 * variance)).astype(np.float32)
    part = part / (6 * (variance - (whole + 1) ** 2)).astype(np.float32)
    return (whole.astype(np.float32) + part).astype(np.float32)


@_jit
def _add(line, sums):
    for x in range(sums.size):
        sums[x] += line[x]


@_jit
def _weigh(sums, first, last, out, inner, outer):
    for x in range(sums.size):
        ends = np.uint32(np.uint32(first[x]) + np.uint32(last[x]))
        total = np.uint32(sums[x] * inner) + np.uint32(ends * outer)
        out[x] = np.uint8(np.uint32(np.uint32(total) + _HALF) >> _SHIFT)


@_jit
def _along_rows(plane, padded, sums, reach, inner, outer):
    """One box filter along every row of (P, P), in place; ``padded`` holds P + 2·reach + 2."""
    size = sums.size
    for y in range(size):
        line = plane[y]
        padded[: reach + 1] = line[0]
        padded[reach + 1 : reach + 1 + size] = line
        padded[reach + 1 + size :] = line[size - 1]
        sums[:] = 0
        for step in range(1, 2 * reach + 2):
            _add(padded[step : step + size], sums)
        last = padded[2 * reach + 2 : 2 * reach + 2 + size]
        _weigh(sums, padded[:size], last, line, inner, outer)


@_jit
def _along_columns(plane, out, sums, reach, inner, outer):
    """One box filter along every column of (P, P), a row at a time, into ``out``."""
    size = sums.size
    for y in range(size):
        sums[:] = 0
        for step in range(-reach, reach + 1):
            _add(plane[min(max(y + step, 0), size - 1)], sums)
        first, last = plane[max(y - reach - 1, 0)], plane[min(y + reach + 1, size - 1)]
        _weigh(sums, first, last, out[y], inner, outer)


@compiled
def _blur(views, radii):
    size = views.shape[3]
    sums = np.empty(size, np.uint32)
    spare = np.empty((size, size), np.uint8)
    for v in range(views.shape[0]):
        reach = int(radii[v])
        inner = np.uint32(_ONE / (np.float64(radii[v]) * 2.0 + 1.0))
        outer = np.uint32((_ONE - (2 * reach + 1) * np.int64(inner)) // 2)
        padded = np.empty(size + 2 * reach + 2, np.uint8)
        for channel in range(3):
            plane = views[v, channel]
            for _ in range(_PASSES):
                _along_rows(plane, padded, sums, reach, inner, outer)
            for _ in range(_PASSES):
                _along_columns(plane, spare, sums, reach, inner, outer)
                plane[:] = spare


def blur_views(views: NDArray[np.uint8], sigmas: NDArray[np.float32]) -> None:
    """Blur views in place.

    Args:
        views: uint8 (n, 3, P, P), C-contiguous.
        sigmas: float32 (n,), standard deviation of each view's blur in pixels; 0 for none.
    """
    for v in sigmas.nonzero()[0]:
        _blur(views[v : v + 1], box_radii(sigmas[v : v + 1]))
