"""A run of the host, and whether it is finished."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pirl_plugin.evaluation.linear_run import final_checkpoint, linear_top1, svm_map


@dataclass(frozen=True)
class Run:
    """One run of the host's engine.

    Attributes:
        title: for people.
        folder: the host's ``CHECKPOINT.DIR``.
        overrides: Hydra overrides without that folder, beginning with ``config=…``.
        measures: whether it is a linear benchmark, finished when its last epoch was tested.
        tool: the host's script, where it is not its engine: then it trains SVMs on VOC07.
    """

    title: str
    folder: Path
    overrides: tuple[str, ...]
    measures: bool = False
    tool: str | None = None

    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        if self.tool is not None:
            try:
                return bool(svm_map(self.folder))
            except ValueError:
                return False
        if not self.measures:
            return final_checkpoint(self.folder) is not None
        try:
            return bool(linear_top1(self.folder))
        except ValueError:
            return False

    def begun(self) -> bool:
        """Whether it has trained or extracted anything."""
        return any(file.suffix in (".torch", ".npy") for file in self.folder.rglob("*"))
