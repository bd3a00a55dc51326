"""How a mistake is answered: one sentence, a non-zero exit status, a traceback on request."""

from __future__ import annotations

import os
from typing import NoReturn

# Set to 1, each shows where in the code a mistake was found.
TRACEBACK_VARIABLES = ("PIRL_PLUGIN_TRACEBACK", "HYDRA_FULL_ERROR")


class ConfigurationError(Exception):
    """A mistake in the configuration, raised in place of ``SystemExit`` on request."""


def traceback_wanted() -> bool:
    """Whether the environment asks for tracebacks."""
    return any(os.environ.get(name, "0") not in ("", "0") for name in TRACEBACK_VARIABLES)


def refuse(sentence: str, cause: BaseException | None = None) -> NoReturn:
    """End the run before it starts.

    Args:
        sentence: what was found, what was expected and what to do.
        cause: the exception behind it, which a traceback shows.

    Raises:
        SystemExit: the sentence, in one line; exit status 1.
        ConfigurationError: the same where ``PIRL_PLUGIN_TRACEBACK=1`` or ``HYDRA_FULL_ERROR=1``.
    """
    line = "pirl_plugin: " + " ".join(sentence.split())
    if traceback_wanted():
        raise ConfigurationError(line) from cause
    raise SystemExit(line) from None


def refuse_tilde(key: str, path: object) -> None:
    """Refuse a path that begins with ``~``, which shells expand at the beginning of a word alone.

    Raises:
        SystemExit: it does; without this, a folder of the name ``~`` would be made.
    """
    if isinstance(path, str) and path.startswith("~"):
        refuse(
            f"{key} = {shown(path)}: expected a path written out, as nothing expands ~ here; write "
            f"$HOME in its place"
        )


def shown(value: object) -> str:
    """A value as a reader of YAML knows it, cut where it is long.

    Example:
        >>> shown(None), shown([True, "x"]), shown({"a": 1.5})
        ('null', "[true, 'x']", '{a: 1.5}')
    """
    if value is None:
        text = "null"
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, dict):
        text = "{" + ", ".join(f"{key}: {shown(entry)}" for key, entry in value.items()) + "}"
    elif isinstance(value, (list, tuple)):
        text = "[" + ", ".join(map(shown, value)) + "]"
    else:
        text = repr(value)
    return text if len(text) <= 160 else f"{text[:157]}…"
