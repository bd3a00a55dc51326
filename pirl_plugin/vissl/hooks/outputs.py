"""Where measures of a run are written: the host's TensorBoard and its ``stdout.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


class Outputs:
    """The open outputs of the host's hooks.

    Args:
        hooks: the host's hooks. One has ``json_stdout_logger``, a file of lines of JSON; with
            ``USE_TENSORBOARD``, one has ``tb_writer``, a ``SummaryWriter``.
    """

    def __init__(self, hooks: Iterable[Any] = ()) -> None:
        self._tensorboard: Any = None
        self._json_lines: Any = None
        for hook in hooks:
            self._tensorboard = getattr(hook, "tb_writer", self._tensorboard)
            self._json_lines = getattr(hook, "json_stdout_logger", self._json_lines)

    def write_scalars(self, group: str, values: Mapping[str, float], step: int) -> None:
        """Write values to TensorBoard, if it is on, as ``GROUP/NAME``."""
        if self._tensorboard is None:
            return
        for name, value in values.items():
            self._tensorboard.add_scalar(f"{group}/{name.replace(' ', '_')}", value, step)

    def write_line(self, line: Mapping[str, Any]) -> None:
        """Append a line to ``stdout.json``; only rank 0 has it open."""
        if self._json_lines is not None:
            self._json_lines.write(json.dumps(line) + "\n")
