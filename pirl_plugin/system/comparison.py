"""Compare values with those that an earlier run recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

NOT_SET = "not set"
"""The value for a missing key."""

Differences = dict[str, tuple[object, object]]
"""Dotted key → the value, and the expected value."""


def differences(
    values: Mapping[str, object], expected: Mapping[str, object], free: Sequence[str] = ()
) -> Differences:
    """Compare nested values key by key.

    Args:
        values: mappings, lists, and JSON values.
        expected: the values to compare with.
        free: dotted keys that may differ, with everything below them.

    Returns:
        The differences, in the order of ``expected``; empty if there are none.

    Example:
        >>> differences({"a": {"b": 1}, "c": 2}, {"a": {"b": 0}, "c": 3}, free=["c"])
        {'a.b': (1, 0)}
    """
    flat_values = flat(values)
    flat_expected = flat(expected)
    differs: Differences = {}
    for key in {**flat_expected, **flat_values}:
        pair = (flat_values.get(key, NOT_SET), flat_expected.get(key, NOT_SET))
        is_default = pair in ((None, NOT_SET), (NOT_SET, None))  # as written before the key existed
        if pair[0] != pair[1] and not is_default and not is_below(key, free):
            differs[key] = pair
    return differs


def flat(values: object, key: str = "") -> dict[str, object]:
    """Flatten nested mappings to dotted key → value; a list of numbers is a value.

    Args:
        values: mappings, lists, and JSON values.
        key: dotted key for ``values`` themselves; empty for a complete configuration.

    Example:
        >>> flat({"a": {"b": [1, 2], "c": [{"d": 3}]}})
        {'a.b': [1, 2], 'a.c[0].d': 3}
    """
    leaves: dict[str, object] = {}
    if isinstance(values, Mapping):
        for name, part in values.items():
            leaves |= flat(part, f"{key}.{name}" if key else str(name))
    elif isinstance(values, list) and any(isinstance(part, (Mapping, list)) for part in values):
        for number, part in enumerate(values):
            leaves |= flat(part, f"{key}[{number}]")
    else:
        leaves[key] = values
    return leaves


def format_differences(
    differs: Differences, pattern: str = "{key} = {value}: expected {expected}", width: int = 80
) -> str:
    """Format the first three differences, each with at most ``width`` characters.

    Example:
        >>> format_differences({"SEED_VALUE": (1, 0)})
        'SEED_VALUE = 1: expected 0'
        >>> format_differences({"SEED_VALUE": (1, 0)}, "{key} {value}", width=9)
        'SEED_VAL…'
    """
    phrases = []
    for key, (value, expected) in list(differs.items())[:3]:
        phrase = pattern.format(key=key, value=_text(value), expected=_text(expected))
        phrases.append(phrase if len(phrase) <= width else f"{phrase[: width - 1]}…")
    if len(differs) > 3:
        phrases.append(f"{len(differs) - 3} more")
    return "; ".join(phrases)


def is_below(key: str, sections: Sequence[str]) -> bool:
    """Return whether a dotted key is one of these, or below one."""
    return any(key == name or key.startswith((f"{name}.", f"{name}[")) for name in sections)


def _text(value: object) -> str:
    """Format a value; an empty text keeps its quotes."""
    return value if isinstance(value, str) and value else json.dumps(value)
