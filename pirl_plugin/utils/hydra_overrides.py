"""Hydra's command line: values, and what it composes to."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any


def quoted(path: str | Path) -> str:
    r"""A path as a value of an override, in quotes where Hydra's grammar needs them.

    Example:
        >>> quoted("runs/a"), quoted("it's, josé")
        ('runs/a', "'it\\'s, josé'")
    """
    text = str(path)
    if re.fullmatch(r"[A-Za-z0-9_./+-]+", text):
        return text
    return _in_hydras_quotes(text)


def in_quotes(key: str, value: object) -> str:
    r"""An override whose text, or texts of a list, Hydra takes as they are, as a shell needs it.

    Example:
        >>> print(in_quotes("DIR", "a,b"), in_quotes("PATHS", [2024, "it's"]))
        "DIR='a,b'" "PATHS=['2024','it\'s']"
        >>> print(in_quotes("DIR", "$HOME"))
        'DIR='"'"'$HOME'"'"''
    """
    texts = value if isinstance(value, list) else [value]
    inside = ",".join(_in_hydras_quotes(str(text)) for text in texts)
    override = f"{key}=[{inside}]" if isinstance(value, list) else f"{key}={inside}"
    in_double_quotes = not re.search(r'["$`!]|\\\\|\\$', override)  # where a shell changes nothing
    return f'"{override}"' if in_double_quotes else shlex.quote(override)


def _in_hydras_quotes(text: str) -> str:
    """In single quotes, where Hydra reads backslashes before a quote as escapes, no others."""
    return "'" + re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + m[2].replace("'", r"\'"), text) + "'"


def compose(*overrides: str) -> Any:
    """The host's configuration for command-line overrides, checked.

    Raises:
        SystemExit: it cannot be composed, or a value is none that the host takes.
    """
    from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

    return convert_to_attrdict(compose_hydra_configuration(list(overrides)), dump_config=False)[1]
