"""What checks of values refuse, in one grammar: ``KEY = VALUE: expected …; do …``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import NoReturn


def refuse(key: str, value: object, expected: str, remedy: str) -> NoReturn:
    """Raise what every check raises.

    Raises:
        ValueError: always.
    """
    shown = f"{value!r}" if isinstance(value, str) else f"{value}"
    raise ValueError(f"{key} = {shown}: expected {expected}; {remedy}")


def check_choice(key: str, value: object, names: Iterable[str]) -> None:
    """Refuse a value that is not one of ``names``, and name the nearest.

    Raises:
        ValueError: it is none of them.
    """
    if not isinstance(value, str) or value not in names:
        near = _nearest(str(value), names)
        remedy = f"write {near}" if near else "set it to one of these"
        refuse(key, value, f"one of {', '.join(names)}", remedy)


def check_keys(section: str, values: Mapping[str, object], known: list[str]) -> None:
    """Refuse a key that the section does not have, and name the nearest.

    Raises:
        ValueError: there is such a key.
    """
    for key in values:
        if key not in known:
            expected = f"a key of {section} ({', '.join(known)})"
            refuse(f"{section}.{key}", values[key], expected, write_or_remove(str(key), known))


def write_or_remove(name: str, known: Iterable[str]) -> str:
    """The remedy for a name that is not among the ``known`` ones.

    Example:
        >>> write_or_remove("patchsize", ["image_size", "patch_size"])
        'write patch_size'
        >>> write_or_remove("size", ["image_size", "patch_size", "grid"])
        'write image_size or patch_size'
    """
    near = _nearest(name, known)
    return f"write {near}" if near else "remove it"


def _nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is nearest, or all that are equally near; empty if none is near."""
    likeness = {k: difflib.SequenceMatcher(None, k, name).ratio() for k in known}
    best = max(likeness.values(), default=0.0)
    return " or ".join(k for k, ratio in likeness.items() if ratio == best >= 0.5)
