"""Settings of this plugin in configurations, the folder of YAML files, and override values."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pirl_plugin.system.failures import MissingPackage, Refused

NOT_INSTALLED = (
    "VISSL, or a package that it needs, is not installed: pip install 'pirl-plugin[vissl]', then "
    "pip install --no-deps vissl==0.1.6"
)
MICRO_BATCHES = "TRAINER.PIRL_MICRO_BATCHES"
"""Key of the number of micro-batches in a process's batch."""


def require_host() -> None:
    """Check that VISSL can be imported.

    Raises:
        MissingPackage: it is not installed.
        Refused: Python removes docstrings.
    """
    if sys.flags.optimize > 1:
        raise Refused(
            f"PYTHONOPTIMIZE = {sys.flags.optimize}: expected at most 1, because Classy Vision "
            f"edits docstrings; unset it, or start Python without -OO"
        )
    if not all(map(importlib.util.find_spec, ("vissl", "hydra", "fvcore", "iopath"))):
        raise MissingPackage(NOT_INSTALLED)


def config_root() -> Path:
    """Return the folder of ``config/`` and ``detection/``: in the package, or in the clone."""
    package = Path(__file__).resolve().parents[1]
    return package / "configs" if (package / "configs").is_dir() else package.parent / "configs"


def is_ours(config: Mapping[str, Any]) -> bool:
    """Return whether a whole configuration of the host belongs to a run of this plugin.

    Then its loss is ``pirl_loss``, or ``HOOKS`` has a section ``PIRL_INPUT`` or ``PIRL_RUN``.
    """
    hooks = config.get("HOOKS") or {}
    loss = (config.get("LOSS") or {}).get("name")
    return loss == "pirl_loss" or "PIRL_INPUT" in hooks or "PIRL_RUN" in hooks


def num_micro_batches(config: Mapping[str, Any]) -> int:
    """Return the number of micro-batches in a process's batch.

    Raises:
        Refused: it is not a whole number from 1.
    """
    number = (config.get("TRAINER") or {}).get(MICRO_BATCHES.partition(".")[2], 1)
    if type(number) is not int or number < 1:
        raise Refused(f"config.{MICRO_BATCHES} = {number}: expected a whole number from 1")
    return number


def quoted(path: str | Path) -> str:
    r"""Return a path as the value of a Hydra override, quoted if Hydra's grammar needs it.

    Example:
        >>> quoted("runs/a"), quoted("it's, josé"), quoted("2024")
        ('runs/a', "'it\\'s, josé'", "'2024'")
    """
    text = str(path)
    if "/" in text and re.fullmatch(r"[A-Za-z0-9_./+-]+", text):  # "2024" would be a number
        return text
    # In quotes, Hydra reads a backslash as an escape only before a quote: double the backslashes
    # before each quote and before the end, and escape the quotes.
    escaped = re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + m[2].replace("'", r"\'"), text)
    return f"'{escaped}'"
