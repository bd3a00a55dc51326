"""The newest checkpoint of a run's folder, while another process may be removing old ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Newest(NamedTuple):
    """A checkpoint, and when it was written, in seconds since the epoch."""

    written: float
    path: Path


def newest_checkpoint(folder: Path) -> Newest | None:
    """The checkpoint that was written last; None where there is none."""
    found = []
    for file in folder.glob("model_*.torch"):
        try:
            found.append(Newest(file.stat().st_mtime, file))
        except OSError:  # removed in the meantime
            continue
    return max(found, default=None)
