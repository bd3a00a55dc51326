"""Checks of the views' parameters; each refusal names the parameter, its value and what to do."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from pirl_plugin.data.photometric import Photometric


def check_size(name: str, value: int) -> int:
    """Return ``value`` if it is a positive integer, else raise ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}; expected an integer, at least 1")
    return value


def check_scale(name: str, value: Sequence[float]) -> tuple[float, float]:
    """Return the pair of area shares 0 < low <= high <= 1, else raise ValueError."""
    try:
        low, high = (float(share) for share in value)
    except (TypeError, ValueError):
        low, high = 0.0, 0.0
    if not 0 < low <= high <= 1:
        raise ValueError(
            f"{name} is {value!r}; expected [smallest, largest], two shares of the image's area "
            "with 0 < smallest <= largest <= 1"
        )
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
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise ValueError(
            f"unknown parameter {', '.join(unknown)}; expected some of "
            f"{', '.join([*others, *known])}"
        )
    return Photometric(**parameters)
