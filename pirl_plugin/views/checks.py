"""Checks of what views are given; each refusal names what was found and what to do."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch

from pirl_plugin.utils.kinds import integer
from pirl_plugin.utils.value_checks import refuse, write_or_remove
from pirl_plugin.views.photometric import Photometric


def check_size(name: str, value: int) -> int:
    """Return ``value`` if it is a positive integer, else raise ValueError."""
    integer(1).check(name, value, "set it to such a number")
    return value


def check_scale(name: str, value: Sequence[float]) -> tuple[float, float]:
    """Return the pair of area shares 0 < low <= high <= 1, else raise ValueError."""
    try:
        low, high = (float(share) for share in value)
    except (TypeError, ValueError):
        low, high = 0.0, 0.0
    if not 0 < low <= high <= 1:
        expected = "[smallest, largest], shares of the image's area above 0 and up to 1"
        refuse(name, value, expected, "set it to such a pair, as [0.08, 1.0]")
    return low, high


def make_photometric(parameters: dict[str, Any], others: Sequence[str]) -> Photometric:
    """Make the ``Photometric`` of the keywords that are left over in a views class.

    Args:
        parameters: the left-over keywords.
        others: the class's own parameters, for the message.

    Raises:
        ValueError: for a keyword that ``Photometric`` does not have, or a bad value.
    """
    known = [field.name for field in fields(Photometric)]
    for name in sorted(parameters.keys() - set(known)):
        options = [*others, *known]
        expected = f"one of the options {', '.join(options)}"
        refuse(name, parameters[name], expected, write_or_remove(name, options))
    return Photometric(**parameters)


def check_pixels(pixels: torch.Tensor) -> None:
    """Refuse what is no image as ``decode_image`` returns it.

    Raises:
        ValueError: it is no tensor, or of another type or shape.
    """
    if not isinstance(pixels, torch.Tensor):
        kind = f"{type(pixels).__module__.partition('.')[0]}'s {type(pixels).__name__}"
        raise ValueError(
            f"pixels are {kind}: expected a uint8 tensor (3, H, W); give "
            f"torch.from_numpy(array).permute(2, 0, 1) of an array (H, W, 3), RGB"
        )
    if pixels.dtype != torch.uint8:
        raise ValueError(
            f"pixels are {pixels.dtype}: expected a uint8 tensor (3, H, W), as decode_image "
            f"returns it; floats are made after the views"
        )
    if pixels.ndim != 3 or len(pixels) != 3:
        remedy = "give RGB, channels first"
        if pixels.ndim == 3 and pixels.shape[2] == 3:
            remedy = "give pixels.permute(2, 0, 1)"
        elif pixels.ndim == 4:
            remedy = "give one image at a time"
        raise ValueError(f"pixels are {tuple(pixels.shape)}: expected (3, H, W), RGB; {remedy}")
