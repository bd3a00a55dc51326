"""What a training run of the host leaves: the names of its checkpoints, and its configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pirl_plugin.checkpoints.read import open_checkpoint
from pirl_plugin.system.failures import Refused

SECTION = "pirl_plugin"
"""Key of this plugin's data in a checkpoint of the host, among the states of the host's hooks."""
RUN_CONFIG = "train_config.yaml"
_NAME = re.compile(
    r"model_(?P<final>final_checkpoint_)?(?P<kind>phase|iteration)(?P<number>\d+)\.torch"
)


@dataclass(frozen=True)
class CheckpointName:
    """The host's name of a checkpoint.

    Attributes:
        kind: ``phase`` at the end of an epoch, ``iteration`` within one.
        number: of the epoch, from 0, or of the step.
        is_final: whether it is the last checkpoint of a finished run.

    Example:
        >>> str(CheckpointName("iteration", 1200)), str(CheckpointName("phase", 9, is_final=True))
        ('model_iteration1200.torch', 'model_final_checkpoint_phase9.torch')
        >>> CheckpointName.parse("model_phase9.torch")
        CheckpointName(kind='phase', number=9, is_final=False)
    """

    kind: str
    number: int
    is_final: bool = False

    def __str__(self) -> str:
        return f"model_{'final_checkpoint_' if self.is_final else ''}{self.kind}{self.number}.torch"

    @classmethod
    def parse(cls, name: str) -> CheckpointName | None:
        """Return the parts of a file's name; None if it is not a checkpoint of the host."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        return cls(match["kind"], int(match["number"]), match["final"] is not None)


def final_checkpoint(folder: Path) -> Path | None:
    """Return the last checkpoint of a finished run; None if there is none.

    The name is enough: with this plugin, a checkpoint gets its name when it is whole.
    """
    for path in folder.glob("model_*.torch"):
        name = CheckpointName.parse(path.name)
        if name is not None and name.is_final:
            return path
    return None


def section_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return this plugin's data in the content of a checkpoint; empty if there are none."""
    hooks = (content.get("classy_state_dict") or {}).get("hooks") or {}
    section: dict[str, Any] = hooks.get(SECTION) or {}
    return section


def run_config(checkpoint: Path, content: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Return the configuration of a checkpoint's run, from the checkpoint or the file beside it.

    Args:
        checkpoint: the file.
        content: of the file, if it has been read.

    Returns:
        The configuration; None if neither has it.

    Raises:
        Refused: the file beside it is not a YAML mapping.
    """
    # In the checkpoint itself, as text, so that no other file is needed.
    if content is None:
        content = {}
        with suppress(ValueError):  # another kind of file, or not a checkpoint
            content = open_checkpoint(checkpoint)
    text = section_of(content).get("config")
    if text is not None:
        config: dict[str, Any] = json.loads(text)
        return config
    for folder in (checkpoint.parent, checkpoint.resolve().parent):  # of a link, of its target
        if (folder / RUN_CONFIG).is_file():
            return read_config(folder / RUN_CONFIG)
    return None


def read_config(file: Path) -> dict[str, Any]:
    """Read a configuration from a file that the host has written.

    Raises:
        Refused: the file is not a YAML mapping.
    """
    safe = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where libyaml is
    config = yaml.load(file.read_text(), Loader=safe)
    if not isinstance(config, dict):
        raise Refused(f"{file}: expected the configuration of a run; remove or repair it")
    return config
