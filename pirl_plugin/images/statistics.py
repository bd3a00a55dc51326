"""Per-channel statistics of images, without missing pixels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pirl_plugin.system.failures import Refused


class Statistics(NamedTuple):
    """Per-channel statistics; for uint8, white is 1.

    Attributes:
        mean: mean.
        std: standard deviation; 1 if the channel is constant.
        low: smallest value; empty if it was not measured.
        high: largest value.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


def measure(
    images: Iterable[tuple[torch.Tensor, NDArray[np.bool_] | None]], white: int, path: str
) -> Statistics:
    """Return the statistics of images, which count equally, by their shares of valid pixels.

    Args:
        images: pixels ``(C, H, W)``, and which are missing; None: none are.
        white: the level that counts as 1.
        path: where the images are, for messages.

    Raises:
        Refused: there are no images, or a channel has no valid pixel.
    """
    per_image = []
    for pixels, missing in images:
        mask = np.ma.nomask if missing is None else missing
        values = np.ma.array(pixels.double().numpy() / white, mask=mask).reshape(len(pixels), -1)
        share = np.ma.array(values.count(1) / values.shape[1])
        moments = [share, values.mean(1), (values**2).mean(1), values.min(1), values.max(1)]
        per_image.append(np.ma.stack(moments))
    if not per_image:
        raise Refused(f"{path}: none of the images could be read; see the warnings above.")
    shares, means, squares, low, high = np.ma.stack(per_image, axis=1)
    mean = np.ma.average(means, 0, shares)
    if np.ma.is_masked(mean):
        raise Refused(f"{path}: a channel has no valid pixel in the images that were tried.")
    variance = np.ma.average(squares, 0, shares) - mean**2
    std = np.where(variance > 0, np.sqrt(np.maximum(variance, 0)), 1)
    columns = (mean, std, low.min(0), high.max(0))
    return Statistics(*(tuple(values.tolist()) for values in columns))
