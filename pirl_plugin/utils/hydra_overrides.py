"""Values for Hydra's command line."""

from __future__ import annotations

import re
from pathlib import Path


def quoted(path: str | Path) -> str:
    r"""A path as a value of an override, in quotes where Hydra's grammar needs them.

    Example:
        >>> quoted("runs/a"), quoted("it's, josé")
        ('runs/a', "'it\\'s, josé'")
    """
    text = str(path)
    if re.fullmatch(r"[A-Za-z0-9_./+-]+", text):
        return text
    return "'" + text.replace("'", r"\'") + "'"
