"""What configurations say of this plugin, where the YAML files are, and values of overrides."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

NOT_INSTALLED = "VISSL is not installed: pip install --no-deps vissl==0.1.6"
MICRO_BATCHES = "TRAINER.PIRL_MICRO_BATCHES"
"""Key of the number of micro-batches that a process's batch is split into."""
VISSL_PIRL = "pretrain/pirl/pirl_jigsaw_4node_resnet50"
"""``config=`` of VISSL's own PIRL, with which benchmarks compare."""


def require_host() -> None:
    """Raise ``ModuleNotFoundError`` where VISSL is not installed."""
    if importlib.util.find_spec("vissl") is None:
        raise ModuleNotFoundError(NOT_INSTALLED)


def config_root() -> Path:
    """Return the folder of ``config/`` and ``detection/``: in the package, or in the clone."""
    package = Path(__file__).resolve().parent
    return package / "configs" if (package / "configs").is_dir() else package.parent / "configs"


def is_ours(config: Mapping[str, Any]) -> bool:
    """Return whether a whole configuration of the host is of a run of this plugin.

    Its loss is ``pirl_loss``, or ``HOOKS`` has a section ``PIRL_INPUT`` or ``PIRL_RUN``.
    """
    hooks = config.get("HOOKS") or {}
    loss = (config.get("LOSS") or {}).get("name")
    return loss == "pirl_loss" or "PIRL_INPUT" in hooks or "PIRL_RUN" in hooks


def num_micro_batches(config: Mapping[str, Any]) -> int:
    """Return the micro-batches of a process's batch."""
    return int((config.get("TRAINER") or {}).get(MICRO_BATCHES.partition(".")[2], 1))


def quoted(path: str | Path) -> str:
    r"""Return a path as the value of a Hydra override, in quotes where its grammar needs them.

    Example:
        >>> quoted("runs/a"), quoted("it's, josé")
        ('runs/a', "'it\\'s, josé'")
    """
    text = str(path)
    if re.fullmatch(r"[A-Za-z0-9_./+-]+", text):
        return text
    return "'" + re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + m[2].replace("'", r"\'"), text) + "'"
