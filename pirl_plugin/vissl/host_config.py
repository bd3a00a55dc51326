"""VISSL's packages, the folder with YAML files, and override values."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

from pirl_plugin.system.failures import MissingPackage, Refused

NOT_INSTALLED = (
    "VISSL, or a package that it needs, is not installed: pip install 'pirl-plugin[vissl]', then "
    "pip install --no-deps vissl==0.1.6"
)


def require_host() -> None:
    """Check that VISSL is importable.

    Raises:
        MissingPackage: it is not installed.
        Refused: Python has removed the docstrings.
    """
    if sys.flags.optimize > 1:
        raise Refused(
            "VISSL's packages need their docstrings. Run Python without -OO, and without "
            "PYTHONOPTIMIZE=2."
        )
    if not all(map(importlib.util.find_spec, ("vissl", "hydra", "fvcore", "iopath"))):
        raise MissingPackage(NOT_INSTALLED)


def config_root() -> Path:
    """Return the folder with ``config/`` and ``detection/``, in the package or the clone."""
    package = Path(__file__).resolve().parents[1]
    return package / "configs" if (package / "configs").is_dir() else package.parent / "configs"


def key_of(argument: str) -> str:
    """Return the configuration key for a library argument that a message names."""
    is_key = argument == "pattern" or argument.endswith("_column")
    return f"config.DATA.TRAIN.{argument.upper()}" if is_key else argument


def literal(text: str) -> str:
    r"""Escape a text so that OmegaConf sees no interpolation in it.

    Example:
        >>> literal("a${x}b")
        'a\\${x}b'
    """
    return re.sub(r"(\\*)\$\{", lambda m: m[1] * 2 + r"\${", text)


def quoted(path: str | Path) -> str:
    r"""Return a path as a Hydra override value, quoted if Hydra's grammar needs it.

    Example:
        >>> quoted("runs/a"), quoted("it's, josé"), quoted("2024")
        ('runs/a', "'it\\'s, josé'", "'2024'")
    """
    text = str(path)
    if "/" in text and re.fullmatch(r"[A-Za-z0-9_./+-]+", text):  # "2024" would be a number
        return text
    text = literal(text)
    # In quotes, Hydra reads a backslash as an escape only before a quote: double the backslashes
    # before each quote and before the end, and escape the quotes.
    escaped = re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + m[2].replace("'", r"\'"), text)
    return f"'{escaped}'"
