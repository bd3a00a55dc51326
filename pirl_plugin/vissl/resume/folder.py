"""The checkpoints in a run's folder: find the newest that loads, and remove old ones."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pirl_plugin.checkpoints.read import check_sums, open_checkpoint
from pirl_plugin.checkpoints.training_run import SECTION
from pirl_plugin.failures import Refused
from pirl_plugin.files import remove, sha256_of

CHECKPOINT_NAME = re.compile(
    r"model_(final_checkpoint_)?(?P<kind>phase|iteration)(?P<number>\d+)\.torch"
)
_SHARDS = "memory_bank"  # folder with a folder of shards for each step


@dataclass(frozen=True)
class Keep:
    """Which checkpoints are kept: the section ``CHECKPOINT.PIRL``.

    Attributes:
        KEEP_LAST: number of the newest checkpoints to keep; ``all`` keeps all of them.
        KEEP_EVERY: m: epochs 0, m, 2·m, … are kept too; 0: none. The final one is always kept.
        EVERY_MINUTES: minutes between saves within an epoch; 0: never.

    Raises:
        ValueError: a value cannot be used.
    """

    KEEP_LAST: int | str = 2
    KEEP_EVERY: int = 0
    EVERY_MINUTES: float = 30

    def __post_init__(self) -> None:
        if isinstance(self.KEEP_LAST, str) and self.KEEP_LAST != "all":
            raise Refused(
                f"config.CHECKPOINT.PIRL.KEEP_LAST = {self.KEEP_LAST}: expected a number or all"
            )


@dataclass
class Found:
    """The checkpoint to resume from.

    Attributes:
        path: path of the checkpoint; None if there is none.
        content: its content; the tensors are still on the disk.
        skipped: name → fault of each checkpoint that cannot be loaded.
    """

    path: Path | None = None
    content: dict[str, Any] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def final(self) -> bool:
        """Whether it is the last checkpoint of a finished run."""
        return self.path is not None and "final" in self.path.name


def find_newest(folder: Path, nth: int = 1, skip_final: bool = False) -> Found:
    """Find the newest undamaged checkpoint of a run.

    Args:
        folder: folder of the run.
        nth: 1 for the newest that loads, 2 for the one before it, …; the oldest at most.
        skip_final: skip the last checkpoint of a finished run.
    """
    opened, skipped = _opened(folder, skip_final)
    found = Found(skipped=skipped)
    for path, content in reversed(opened):
        try:
            check_sums(path)
            _check_shards(folder, content)
        except ValueError as error:
            skipped[path.name] = str(error)
            continue
        found.path, found.content = path, content
        nth -= 1
        if nth <= 0:
            break
    return found


def shards_of_step(step: int) -> str:
    """Return the folder of the memory bank's shards of a step, relative to the run's folder.

    Example:
        >>> shards_of_step(40)
        'memory_bank/step_40'
    """
    return f"{_SHARDS}/step_{step}"


class RunFolder:
    """Removes the checkpoints of a run that are not kept.

    Args:
        folder: ``CHECKPOINT.DIR``.
        keep: which checkpoints are kept.
        resumed: the checkpoint in the folder that the run resumes from. Without it, the files in
            the folder belong to another run, and are kept.
    """

    def __init__(self, folder: Path, keep: Keep, resumed: Path | None = None) -> None:
        self.folder, self.keep = folder, keep
        self._saved: dict[str, str | None] = {}  # name → folder of its shards; the newest is last
        if resumed is None:
            return
        opened, _ = _opened(folder)
        names = [path.name for path, _ in opened]
        for path, content in opened[: names.index(resumed.name) + 1]:
            self._saved[path.name] = _shards_of(content)

    def record(self, content: Mapping[str, Any], name: str) -> None:
        """Record a checkpoint that was just written, and remove checkpoints that are not kept."""
        self._saved.pop(name, None)
        self._saved[name] = _shards_of(content)
        names = list(self._saved)
        last = len(names) if self.keep.KEEP_LAST == "all" else int(self.keep.KEEP_LAST)
        kept = {each for each in names if each in names[-last:] or self._is_kept(each)}
        shards = {self._saved[each] for each in kept}
        for old in [each for each in names if each not in kept]:
            folder = self._saved.pop(old)
            try:
                remove(self.folder / old)
                if folder is not None and folder not in shards:
                    remove(self.folder / folder)
            except OSError as error:
                logging.root.warning(f"{old} is not kept, and could not be removed: {error}")

    def _is_kept(self, name: str) -> bool:
        match, every = CHECKPOINT_NAME.fullmatch(name), self.keep.KEEP_EVERY
        assert match is not None, "the host names it"
        nth = every and match["kind"] == "phase" and int(match["number"]) % every == 0
        return bool(match[1] or nth)


def _opened(
    folder: Path, skip_final: bool = False
) -> tuple[list[tuple[Path, dict[str, Any]]], dict[str, str]]:
    """Return path and content of all checkpoints, oldest first, and name → fault of the others."""
    opened, skipped = [], {}
    for path in folder.glob("model_*.torch"):
        match = CHECKPOINT_NAME.fullmatch(path.name)
        if match is None or (skip_final and match[1]):
            continue
        try:
            content = open_checkpoint(path)
            # At the same iteration, the checkpoint of the finished epoch is the newer one.
            opened.append(((int(content["iteration"]), match["kind"] == "phase"), path, content))
        except (KeyError, TypeError, ValueError) as error:
            skipped[path.name] = str(error)
    opened.sort(key=lambda each: each[0])
    return [(path, content) for _, path, content in opened], skipped


def _shards_of(content: Mapping[str, Any]) -> str | None:
    """Return the folder of a checkpoint's shards, relative to the run's folder; None if none."""
    if not (content.get(SECTION) or {}).get("shards"):
        return None
    return shards_of_step(int(content["loss"]["_extra_state"]["step"]))


def _check_shards(run: Path, content: Mapping[str, Any]) -> None:
    """Compare the shards of a checkpoint's bank with the checksums in the checkpoint.

    Raises:
        ValueError: a shard is missing or differs; the message has its name.
    """
    if (folder := _shards_of(content)) is not None:
        for name, digest in content[SECTION]["shards"].items():
            file = run / folder / name
            if not file.is_file():
                raise Refused(f"its memory bank's file {file} is missing")
            if sha256_of(file) != digest:
                raise Refused(f"its memory bank's file {file} has another checksum")
