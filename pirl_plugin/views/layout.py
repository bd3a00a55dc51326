"""Which axes of an array are channels, height and width."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from pirl_plugin.system.console import warn_once
from pirl_plugin.system.failures import Refused

PAGES_FIRST = 0
"""The usual channel axis of an image stack: one page, or plane, per channel."""
CHANNELS_LAST = -1
"""The usual channel axis of an array (H, W, C)."""
MOST_USUAL = 4
"""An axis with at most as many elements, in its usual place, holds the channels."""

_IMAGE_AXES = "YX"
_CHANNEL_AXES = "CS"  # tifffile's names: channels and samples
_UNNAMED_AXES = "IQ"  # tifffile's names for pages, and for an axis without a name


def channels_first(array: NDArray[Any], axes: str = "", usual: int = CHANNELS_LAST) -> NDArray[Any]:
    """Return a view (C, H, W) of an image.

    A named axis for channels is used. So is another named axis, such as Z, if it is the only one; a
    warning names it. An unnamed axis holds the channels if it has at most four elements in its
    usual place, or is shorter than the two others. If it is elsewhere, a warning says so.

    Args:
        array: the image: (H, W), or three axes in any order.
        axes: one letter per axis, as in tifffile; empty if the axes have no names.
        usual: the usual channel axis: ``PAGES_FIRST`` or ``CHANNELS_LAST``.

    Raises:
        Refused: there is more than one axis besides height and width, or no axis is clearly the
            channels.

    Example:
        >>> import numpy as np
        >>> channels_first(np.zeros((60, 40, 13))).shape
        (13, 60, 40)
    """
    if axes and not set(axes) & set(_UNNAMED_AXES):
        return _by_name(array, axes)
    while array.ndim > 3 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 2:
        return array[None]
    if array.ndim != 3:
        raise Refused(
            f"the image has {array.ndim} axes, of shape {array.shape}. Save one plane per file, or "
            f"a projection."
        )
    axis = _channel_axis(array.shape, usual)
    if axis != usual and array.shape[axis] > 1:
        order = "C, H, W" if axis == PAGES_FIRST else "H, W, C"
        warn_once(f"Some images have the axes {order}: the shortest axis holds the channels.")
    return array if axis == PAGES_FIRST else array.transpose(2, 0, 1)


def _by_name(array: NDArray[Any], axes: str) -> NDArray[Any]:
    is_other = [name not in _IMAGE_AXES for name in axes]
    others = [n for n, size in enumerate(array.shape) if is_other[n] and size > 1]
    single = [n for n, size in enumerate(array.shape) if is_other[n] and size == 1]
    if len(others) > 1:
        raise Refused(f"the image has axes {axes}. Save one plane per file, or a projection.")
    if others and axes[others[0]] not in _CHANNEL_AXES:
        name = axes[others[0]]
        warn_once(f"Some images have the axes {axes}: the axis {name} serves as channels.")
    image_axes = [axes.index(name) for name in _IMAGE_AXES]
    ordered = array.transpose([*single, *others, *image_axes])
    image = ordered[(0,) * len(single)]
    return image if others else image[None]


def _channel_axis(shape: tuple[int, ...], usual: int) -> int:
    """Return 0 or −1, the channel axis of an image without names for its axes."""
    unusual = CHANNELS_LAST if usual == PAGES_FIRST else PAGES_FIRST
    if shape[usual] <= MOST_USUAL:
        return usual
    for axis in (usual, unusual):
        if shape[axis] < min(shape[1], shape[-1 - axis]):
            return axis
    first, middle, last = shape
    raise Refused(
        f"the image has shape {shape}: {last} channels of {first} × {middle} px, or {first} "
        f"channels of {middle} × {last} px. Save a TIFF with named axes, or pass a tensor "
        f"(C, H, W)."
    )
