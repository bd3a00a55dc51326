"""Shrink images with any channels and dtype, and keep missing pixels missing."""

from __future__ import annotations

import io

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from pirl_plugin.images.tiff import encode_tiff


def shrink(
    pixels: torch.Tensor,
    missing: NDArray[np.bool_] | None,
    size: tuple[int, int],
    nodata: float | None,
) -> NDArray[np.generic]:
    """Return a smaller image; each of its pixels is a mean of valid pixels.

    Args:
        pixels: ``(C, H, W)`` in uint8, uint16 or float32.
        missing: ``(C, H, W)``, which values are missing; None: none are.
        size: height and width of the result.
        nodata: what marks a missing value in the result if it is an integer; others are NaN.

    Returns:
        ``(C, height, width)``, same dtype. A pixel is missing if more than half of what it covers
        is missing.
    """
    valid = torch.ones_like(pixels, dtype=torch.float32)
    if missing is not None:
        valid = torch.from_numpy(~missing).float()
    values = torch.where(valid > 0, pixels.float(), 0)
    both = torch.stack([values, valid])
    total, share = interpolate(both, size, mode="bilinear", antialias=True).numpy()
    means = total / np.maximum(share, np.finfo(np.float32).eps)
    dtype = pixels.numpy().dtype
    if dtype.kind != "f":
        means = means.round()
    is_missing = share < 0.5
    means[is_missing] = np.nan if dtype.kind == "f" else (nodata or 0)
    return means.astype(dtype)


def encode(array: NDArray[np.generic], nodata: float | None) -> bytes:
    """Return an array ``(C, H, W)`` as a file: a ``.npy`` or, to name ``nodata`` or axes, a TIFF.

    A ``.npy`` with more channels than pixels on a side would be read with other axes.
    """
    if nodata is not None or len(array) >= min(array.shape[1:]):
        return encode_tiff(array, nodata)
    file = io.BytesIO()
    np.save(file, np.moveaxis(array, 0, -1))
    return file.getvalue()
