"""Which axes of an array are channels, height and width."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from pirl_plugin.system.console import warn_once
from pirl_plugin.system.failures import Refused

CHANNELS_LAST = "YXC"
"""The usual axes of an array: height, width, channels. The letters are tifffile's."""
PAGES_FIRST = "CYX"
"""The usual axes of a file with a page, or plane, for each channel."""
MOST_USUAL = 4
"""An axis with at most as many elements, in its usual place, holds the channels."""

_IMAGE_AXES = "YX"
_CHANNEL_AXES = "CS"  # channels and samples
_UNNAMED_AXES = "IQ"  # pages, and unknown


def channels_first(array: NDArray[Any], axes: str = "", usual: str = CHANNELS_LAST) -> NDArray[Any]:
    """Return a view (C, H, W) of an image.

    A named axis for channels is used. So is another named axis, such as Z, if it is the only one; a
    warning names it. An unnamed axis holds the channels if it has at most four elements in its
    usual place, or is shorter than the two others. If it is not in its usual place, a warning says
    so.

    Args:
        array: the image: (H, W), or three axes in any order.
        axes: one letter per axis, as in tifffile; empty if the axes have no names.
        usual: ``CHANNELS_LAST`` or ``PAGES_FIRST``.

    Raises:
        Refused: there is more than one axis besides height and width, or no axis is clearly the
            channels.

    Example:
        >>> import numpy as np
        >>> channels_first(np.zeros((60, 40, 13))).shape
        (13, 60, 40)
    """
    names = axes
    if not axes or set(axes) & set(_UNNAMED_AXES):
        leading = max(array.ndim - 3, 0)
        names = "Q" * leading + _name_axes(array.shape[leading:], usual)
    sizes = zip(names, array.shape, strict=True)
    others = [name for name, size in sizes if name not in _IMAGE_AXES and size > 1]
    if len(others) > 1:
        raise Refused(
            f"the image has axes {axes or array.shape}. Save one plane per file, or a projection."
        )
    if others and others[0] not in _CHANNEL_AXES:
        warn_once(f"Some images have the axes {axes}: {others[0]} serves as channels.")
    # Height and width last; all other axes but one have one element.
    order = sorted(range(array.ndim), key=lambda axis: _IMAGE_AXES.find(names[axis]))
    image = array.transpose(order)
    return image.reshape(-1, *image.shape[-2:])


def _name_axes(shape: tuple[int, ...], usual: str) -> str:
    """Return the axes of an image, ``YX``, ``YXC`` or ``CYX``, from their lengths."""
    if len(shape) == 2:
        return _IMAGE_AXES
    if shape[usual.index("C")] <= MOST_USUAL:
        return usual
    shortest = min(shape)
    order = {0: PAGES_FIRST, 2: CHANNELS_LAST}.get(shape.index(shortest))
    if order is not None and shape.count(shortest) == 1:
        if order != usual and shortest > 1:
            listed = ", ".join(order).replace("Y", "H").replace("X", "W")
            warn_once(f"Some images have the axes {listed}: the shortest is the channels.")
        return order
    first, middle, last = shape
    raise Refused(
        f"the image has shape {shape}: {last} channels of {first} × {middle} px, or {first} "
        f"channels of {middle} × {last} px. Save a TIFF with named axes, or pass a tensor "
        f"(C, H, W)."
    )
