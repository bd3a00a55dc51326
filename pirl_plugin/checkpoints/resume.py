"""Find the checkpoint to go on from: the newest that is what was saved."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pirl_plugin.checkpoints.host_checkpoint import CHECKPOINT_NAME, HostCheckpoint
from pirl_plugin.checkpoints.run_folder import shards_of_step
from pirl_plugin.checkpoints.shards import check_shards
from pirl_plugin.checkpoints.verify import DamagedError, open_checkpoint, verify
from pirl_plugin.checkpoints.write import NonFiniteStateError, check_finite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class Found:
    """The checkpoint to go on from.

    Attributes:
        path: None where there is none.
        content: of the checkpoint, its tensors still on the disk.
        final: whether it ends a run.
        skipped: name and what is wrong with each that cannot be loaded.
    """

    path: Path | None = None
    content: HostCheckpoint = field(default_factory=HostCheckpoint)
    final: bool = False
    skipped: dict[str, str] = field(default_factory=dict)


def find_newest(folder: Path, nth: int = 1, skip_final: bool = False) -> Found:
    """Find the checkpoint to go on from.

    Args:
        folder: of the run.
        nth: 1 for the newest that loads, 2 for the one before it, …; the oldest at most.
        skip_final: pass by those that end a run.

    Returns:
        It, by the training steps done, at the end of an epoch before in the middle of it.
    """
    found = Found()
    opened = []
    for path, match in _checkpoints(folder):
        if match[1] and skip_final:
            continue
        try:
            content = open_checkpoint(path)
            opened.append((int(content["iteration"]), match[2] == "phase", bool(match[1]), path))
        except (DamagedError, KeyError, TypeError, ValueError) as error:
            found.skipped[path.name] = str(error)
    for _, _, final, path in sorted(opened, reverse=True):
        try:
            content = _verified(path)
        except (DamagedError, NonFiniteStateError) as error:
            found.skipped[path.name] = str(error)
            continue
        found.path, found.content, found.final = path, content, final
        nth -= 1
        if nth <= 0:
            break
    return found


def bank_of(content: HostCheckpoint) -> str | None:
    """The folder of shards that belongs to a checkpoint, from the run's folder; None without."""
    loss = content.get("loss", {})
    if "_extra_state" in loss and "norm_constant" in loss and "bank.rows" not in loss:
        return shards_of_step(int(loss["_extra_state"]["step"]))
    return None


def _verified(path: Path) -> HostCheckpoint:
    content = verify(path)
    state = content["classy_state_dict"]
    for part in (state.get("base_model"), state.get("optimizer"), content.get("loss")):
        check_finite(part, path.name)
    bank = bank_of(content)
    if bank is not None:
        check_shards(path.parent / bank)
    return content


def _checkpoints(folder: Path) -> Iterator[tuple[Path, re.Match[str]]]:
    for path in sorted(folder.glob("model_*.torch")) if folder.is_dir() else ():
        match = CHECKPOINT_NAME.fullmatch(path.name)
        if match is not None:
            yield path, match
