"""The configuration of the run that wrote a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pirl_plugin.checkpoints.read import (
    RUN_CONFIG,
    CheckpointName,
    read_checkpoint,
    read_config,
    section_of,
)


def run_config(checkpoint: Path, content: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Return the configuration of a checkpoint's run, from the checkpoint or the file beside it.

    Args:
        checkpoint: the file. The file beside it is read only if the checkpoint, or the target of
            this link, is named as VISSL names checkpoints.
        content: content of the checkpoint, if it has been read.

    Returns:
        The configuration; None if there is none.
    """
    # In the checkpoint itself, as text, so that no other file is needed.
    if content is None:
        content = {}
        with suppress(OSError, ValueError):  # another kind of file, or not a checkpoint
            content = read_checkpoint(checkpoint, mapped=True)
    text = section_of(content).get("config")
    if text is not None:
        config: dict[str, Any] = json.loads(text)
        return config
    # Beside it, if VISSL named it: other weights in a run's folder do not come from the run.
    for file in (checkpoint, checkpoint.resolve()):  # a link, and its target
        is_of_host = file.name == "checkpoint.torch" or CheckpointName.parse(file.name) is not None
        if is_of_host and file.with_name(RUN_CONFIG).is_file():
            return read_config(file.with_name(RUN_CONFIG))
    return None
