"""Views as an entry of a configuration's ``TRANSFORMS`` describes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_NOT_OURS = frozenset({"name", "indices"})


def parameters_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What the views class of an entry is given; ``name`` and ``indices`` are the host's.

    ``photometric`` may hold photometric parameters together; those beside it come first.

    Example:
        >>> entry = {"name": "PIRLImage", "photometric": {"hue": 0.1, "blur": 0.5}, "blur": 0}
        >>> parameters_of(entry)
        {'hue': 0.1, 'blur': 0}
    """
    parameters = {key: value for key, value in entry.items() if key not in _NOT_OURS}
    photometric = parameters.pop("photometric", None) or {}
    return {**photometric, **parameters}
