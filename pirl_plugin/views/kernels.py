"""Kernels that cut views and apply photometric parameters, in compiled loops.

The kernel gives the same bytes as this code, which makes a view from the canvas (a resized crop)
and its row of parameters::

    view = canvas.crop((left, top, left + size, top + size))
    for operation in row.order:  # the color jitter
        if operation == 0: view = ImageEnhance.Brightness(view).enhance(row.brightness)
        if operation == 1: view = ImageEnhance.Contrast(view).enhance(row.contrast)
        if operation == 2: view = ImageEnhance.Color(view).enhance(row.saturation)
        if operation == 3: view = torchvision.adjust_hue(view, row.hue)
    if row.extras:
        view = ImageOps.posterize(view, int(row.posterize))
        view = ImageEnhance.Sharpness(view).enhance(row.sharpness)
        view = ImageOps.autocontrast(ImageOps.solarize(view, int(row.solarize)))
    if row.equalize: view = ImageOps.equalize(view)
    if row.grayscale: view = view.convert("L").convert("RGB")
    if row.blur: view = view.filter(ImageFilter.GaussianBlur(row.blur))
    if row.flip: view = ImageOps.mirror(view)

A view is cut into three planes of bytes. Color jitter processes them in chunks of float32 in the
first-level cache, with one vectorized loop per operation. Each operation rounds down, as PIL does
when storing bytes, so results equal PIL's bit for bit. Two operations need the complete view, which
splits the work into passes: contrast needs the mean gray level, autocontrast the extrema. PIL
itself computes equalization and blur, which are off by default. Views are flipped while they are
cut, because no other operation depends on the direction.

Loops begin at the lowest neighbor of a pixel. With an index such as ``x - width``, numba would
check for negative indices and could not vectorize. Numba recompiles when this file changes, so it
contains all constants of the kernels.
"""

from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps

from pirl_plugin.system.kernel_cache import compiled

_CHUNK = 1024  # pixels at a time, so that their floats fit in the first-level cache

# Constants from PIL's arithmetic, as float32.
_F0 = np.float32(0)
_F1 = np.float32(1)
_F2 = np.float32(2)
_F4 = np.float32(4)
_F6 = np.float32(6)
_F255 = np.float32(255)
_F256 = np.float32(256)
_F510 = np.float32(510)
_F765 = np.float32(765)
_F1020 = np.float32(1020)
_HALF = np.float32(0.5)
_THIRTEENTH = np.float32(1 / 13)
_SIXTH = 1.0 / 6.0
# ITU-R 601 luma in 16-bit fixed point.
_RED = np.float32(19595)
_GREEN = np.float32(38470)
_BLUE = np.float32(7471)
_F32768 = np.float32(32768)
_PER_65536 = np.float32(2**-16)
# 1/255 in 16 bits, so that its product with a byte is exact, and the remainder.
_PER_255 = np.float32(32896 / 2**23)
_PER_255_REST = np.float32(1 / 255 - 32896 / 2**23)
# In floats: the quotient of two bytes times 255, rounded down, equal to PIL's in doubles.
_BELOW_255 = np.float32(255 - 3 * 2**-16)
_LEAST_STEP = np.float32(2**-14)

_jit = numba.njit(nogil=True, error_model="numpy")


@_jit
def _blend(base, value, factor):
    """Blend as PIL does: ``base`` + ``factor``·(``value`` − ``base``), clipped, rounded down."""
    mixed = base + factor * (value - base)
    return np.floor(min(max(mixed, _F0), _F255))


@_jit
def _luma(r, g, b):
    """Return ITU-R 601 luma as PIL's conversion to ``L`` does, in 16-bit fixed point.

    Floats are exact here: all intermediate values are integers below 2²⁴.
    """
    weighted = np.float32(r) * _RED + np.float32(g) * _GREEN + np.float32(b) * _BLUE
    return np.floor((weighted + _F32768) * _PER_65536)


@_jit
def _sum_luma(r, g, b):
    total = np.int32(0)
    for x in range(r.size):
        total = np.int32(total + np.int32(_luma(r[x], g[x], b[x])))  # numba would widen it
    return np.int64(total)


@_jit
def _saturate(r, g, b, factor):
    for x in range(r.size):
        gray = _luma(r[x], g[x], b[x])
        r[x] = _blend(gray, r[x], factor)
        g[x] = _blend(gray, g[x], factor)
        b[x] = _blend(gray, b[x], factor)


@_jit
def _blend_chunk(r, g, b, base, factor):
    for x in range(r.size):
        r[x] = _blend(base, r[x], factor)
        g[x] = _blend(base, g[x], factor)
        b[x] = _blend(base, b[x], factor)


@_jit
def _share(level):
    """Return ``level`` / 255 as a float, for integer levels, without division or doubles."""
    return level * _PER_255 + level * _PER_255_REST


@_jit
def _fall(value, saturation, depth):
    share = _share(min(max(depth, _F0), _F255))
    return np.floor(value * (_F1 - saturation * share) + _HALF)


@_jit
def _turn_hue(r, g, b, shift):
    """Convert to PIL's 8-bit HSV, turn the hue by ``shift``/256 turns (0 … 255), convert back.

    Doubles are used where PIL uses them and a float would round across an integer, so the result
    equals PIL's for all 2²⁴ colors. PIL's hue is ``start`` + (value − ahead)/spread −
    (value − behind)/spread sixths. For the darker of these two channels, the quotient is 1.
    """
    for x in range(r.size):
        red, green, blue = r[x], g[x], b[x]
        value = max(red, max(green, blue))
        least = min(red, min(green, blue))
        spread = value - least
        # The hue in sixths: 0 is red, 2 green and 4 blue; `value` is the largest channel.
        start = _F2 if green == value else _F4
        ahead = red if green == value else green
        start = _F0 if red == value else start
        ahead = blue if red == value else ahead
        middle = max(min(red, green), min(max(red, green), blue))
        part = (value - middle) / max(spread, _F1)
        sector = start + _F1 - part if ahead == least else start - _F1 + part
        # The hue in turns, then in 1/256 of a turn, and shifted.
        exact_turn = np.float64(sector) * _SIXTH + 1.0
        turn = np.float32(exact_turn - 1.0 if exact_turn >= 1.0 else exact_turn)
        hue = np.float32(np.int32(np.float64(turn) * 255.0)) + shift
        hue = hue - _F256 if hue >= _F256 else hue
        level = np.floor(spread / max(value, _F1) * _BELOW_255 + _LEAST_STEP)
        saturation = _share(level)
        # To RGB: each channel is `value` minus a trapezoid in the hue, in 1/255 of a sector.
        position = hue * _F6
        r[x] = _fall(value, saturation, _F510 - abs(position - _F765))
        g[x] = _fall(value, saturation, abs(position - _F510) - _F255)
        b[x] = _fall(value, saturation, abs(position - _F1020) - _F255)


@_jit
def _jitter_chunk(r, g, b, row, first, last, shift, mean):
    """Apply the jitter operations at positions ``first`` … ``last`` − 1 in the order."""
    for position in range(first, last):
        operation = int(row.order[position])
        if operation == 0:
            if row.brightness != _F1:
                _blend_chunk(r, g, b, _F0, row.brightness)
        elif operation == 1:
            _blend_chunk(r, g, b, mean, row.contrast)
        elif operation == 2:
            if row.saturation != _F1:
                _saturate(r, g, b, row.saturation)
        elif row.hue != _F0:
            _turn_hue(r, g, b, shift)


@_jit
def _fetch(source, values):
    for x in range(source.size):
        values[x] = source[x]


@_jit
def _cut(canvas, top, left, flip, planes, size):
    """Copy a view from the interleaved canvas (H, W·C) into its planes (C, P·P)."""
    channels = planes.shape[0]
    for y in range(size):
        line = canvas[top + y, channels * left : channels * (left + size)]
        for channel in range(channels):
            pixels = line[channel::channels]
            target = planes[channel, y * size : (y + 1) * size]
            _fetch(pixels[::-1] if flip else pixels, target)


@_jit
def _store(values, target):
    for x in range(target.size):
        target[x] = np.uint8(np.int32(values[x]))


@_jit
def _jitter_pass(planes, row, first, last, mean, chunk):
    """Apply jitter positions ``first`` … ``last`` − 1 to a view; return its summed luma.

    The sum is 0 for the last pass, which does not need it.
    """
    shift = np.float32(np.int32(np.float64(row.hue) * 255.0) & 255)
    total = 0
    for start in range(0, planes.shape[1], _CHUNK):
        stop = min(start + _CHUNK, planes.shape[1])
        r = chunk[0, : stop - start]
        g = chunk[1, : stop - start]
        b = chunk[2, : stop - start]
        for channel in range(3):
            _fetch(planes[channel, start:stop], chunk[channel])
        _jitter_chunk(r, g, b, row, first, last, shift, mean)
        if last < 4:
            total += _sum_luma(r, g, b)
        for channel in range(3):
            _store(chunk[channel], planes[channel, start:stop])
    return total


@_jit
def _jitter(planes, row, chunk):
    """Apply color jitter in two passes: up to contrast, which needs the mean, and from there."""
    contrast_at = 4  # after all operations, for no contrast
    for position in range(4):
        if row.order[position] == _F1 and row.contrast != _F1:
            contrast_at = position
    total = _jitter_pass(planes, row, 0, contrast_at, _F0, chunk)
    if contrast_at < 4:
        mean = np.float32(int(total / planes.shape[1] + 0.5))  # rounded, as in PIL
        _jitter_pass(planes, row, contrast_at, 4, mean, chunk)


@_jit
def _sharpen(plane, out, size, factor):
    """Blend a channel, except its border, with its 3×3 smoothing (weights 1, center 5, sum 13).

    The plane is one line of P·P bytes, so the pixels above and below are P bytes away. The ends of
    rows get neighbors from other rows, and are overwritten.
    """
    count = plane.size - 2 * size - 2
    middle = plane[size:]
    bottom = plane[2 * size :]
    inner = out[size + 1 : size + 1 + count]
    for x in range(count):
        center = middle[x + 1]
        total = np.uint16(plane[x]) + np.uint16(plane[x + 1]) + np.uint16(plane[x + 2])
        total += np.uint16(middle[x]) + np.uint16(middle[x + 2]) + np.uint16(5) * np.uint16(center)
        total += np.uint16(bottom[x]) + np.uint16(bottom[x + 1]) + np.uint16(bottom[x + 2])
        smooth = np.floor(np.float32(np.uint16(total)) * _THIRTEENTH + _HALF)
        inner[x] = np.uint8(np.int32(_blend(smooth, np.float32(center), factor)))
    # PIL does not filter the border.
    for x in range(size):
        out[x] = plane[x]
        out[plane.size - size + x] = plane[plane.size - size + x]
        out[x * size] = plane[x * size]
        out[x * size + size - 1] = plane[x * size + size - 1]


@_jit
def _extras(plane, spare, size, row):
    """Posterize, sharpen, solarize and autocontrast one channel in place."""
    mask = np.uint8((255 << (8 - int(row.posterize))) & 255)  # posterize: the upper bits
    for x in range(plane.size):
        plane[x] = plane[x] & mask
    _sharpen(plane, spare, size, row.sharpness)
    # Pixels at or above the threshold are inverted; 256 inverts none.
    last_kept = np.uint8(max(int(row.solarize) - 1, 0))
    invert_all = row.solarize == _F0
    low = np.uint8(255)
    high = np.uint8(0)
    for x in range(plane.size):
        value = spare[x]
        value = np.uint8(255 - value) if value > last_kept or invert_all else value
        plane[x] = value
        low = min(low, value)
        high = max(high, value)
    # Autocontrast stretches the range to 0 … 255, unless it is empty or full.
    spread = np.int64(high) - np.int64(low)
    if 0 < spread < 255:
        scale = 255.0 / spread
        offset = -np.float64(low) * scale
        for x in range(plane.size):
            plane[x] = np.uint8(np.int32(np.float64(plane[x]) * scale + offset))


@_jit
def _grayscale(r, g, b):
    for x in range(r.size):
        gray = np.uint8(np.int32(_luma(r[x], g[x], b[x])))
        r[x] = gray
        g[x] = gray
        b[x] = gray


@compiled
def _render(canvas, corners, rows, out):
    """Fill ``out`` with the views before equalization (with its grayscale) and blur."""
    size = out.shape[3]
    flat_canvas = canvas.reshape(canvas.shape[0], canvas.shape[1] * 3)
    flat_out = out.reshape(out.shape[0], 3, size * size)
    chunk = np.empty((3, _CHUNK), np.float32)
    spare = np.empty(size * size, np.uint8)
    for v in range(out.shape[0]):
        row = rows[v]
        planes = flat_out[v]
        _cut(flat_canvas, corners[v, 0], corners[v, 1], row.flip != _F0, planes, size)
        _jitter(planes, row, chunk)
        for channel in range(3):
            if row.extras != _F0:
                _extras(planes[channel], spare, size, row)
        if row.grayscale != _F0 and row.equalize == _F0:
            _grayscale(planes[0], planes[1], planes[2])


def render(
    canvas: NDArray[Any], corners: NDArray[np.int32], rows: NDArray[Any], size: int
) -> torch.Tensor:
    """Cut views from an image and apply their photometric parameters.

    Args:
        canvas: (H, W, C), C-contiguous, uint8, uint16 or float32.
        corners: int32 (n, 2), top and left of each view in the canvas, pixels.
        rows: structured array (n,), from ``Photometric.sample`` for this canvas.
        size: side P of a view, pixels. All views must lie inside the canvas.

    Returns:
        (n, C, P, P), same dtype as the canvas.
    """
    if canvas.dtype != np.uint8 or canvas.shape[2] != 3:
        return torch.from_numpy(_render_channels(canvas, corners, rows, size))
    views = np.empty((len(rows), 3, size, size), np.uint8)
    _render(canvas, corners, rows, views)
    for v in np.flatnonzero(rows["equalize"] + rows["blur"]):
        row = rows[v]
        view = Image.fromarray(views[v].transpose(1, 2, 0).copy())
        if row["equalize"]:
            view = ImageOps.equalize(view)
            view = view.convert("L").convert("RGB") if row["grayscale"] else view
        if row["blur"]:
            view = view.filter(ImageFilter.GaussianBlur(float(row["blur"])))
        views[v] = np.asarray(view).transpose(2, 0, 1)
    return torch.from_numpy(views)


def _render_channels(
    canvas: NDArray[Any], corners: NDArray[np.int32], rows: NDArray[Any], size: int
) -> NDArray[Any]:
    """Render views of images other than RGB: brightness and contrast per channel."""
    cut = [canvas[top : top + size, left : left + size] for top, left in corners]
    views = np.stack(cut).transpose(0, 3, 1, 2).astype(np.float32)  # (n, C, P, P)
    is_flipped = rows["flip"]
    views[is_flipped] = views[is_flipped, ..., ::-1]
    views *= rows["brightness"][..., None, None]
    mean = views.mean(axis=(2, 3), keepdims=True)
    views += (rows["contrast"][..., None, None] - 1) * (views - mean)
    if canvas.dtype != np.float32:
        views = np.rint(views).clip(0, np.iinfo(canvas.dtype).max)
    return views.astype(canvas.dtype)
