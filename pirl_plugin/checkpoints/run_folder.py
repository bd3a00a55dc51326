"""The checkpoints of a run's folder: what the run wrote there, and what it may remove."""

from __future__ import annotations

import json
import logging
import math
import re
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pirl_plugin.files import UNFINISHED, atomic_write, remove

LEDGER = "checkpoints.json"  # what the run wrote: no other file is ever removed
MANIFEST = "checksums.json"  # in a folder of shards; it is written last
SHARDS = "memory_bank"  # the folder of the folders of shards
_OURS = re.compile(rf"model_\w+\.torch|{SHARDS}/step_\d+")
_TAIL = 1 << 16  # the end of a file of torch.save holds the checksums of all its tensors


def shards_of_step(step: int) -> str:
    """The folder of the memory bank's shards of a step, from the run's folder.

    Example:
        >>> shards_of_step(40)
        'memory_bank/step_40'
    """
    return f"{SHARDS}/step_{step}"


@dataclass(frozen=True)
class Keep:
    """Which checkpoints stay: ``CHECKPOINT.PIRL`` of the configuration.

    Attributes:
        KEEP_LAST: the newest so many, at least 1; ``all`` for all of them.
        KEEP_EVERY: the epochs 0, m, 2·m, … too; 0 for none. The final one always stays.
        EVERY_MINUTES: minutes after which the run saves in the middle of an epoch; 0 for never.

    Raises:
        ValueError: a value is none of these.
    """

    KEEP_LAST: int | str = 2
    KEEP_EVERY: int = 0
    EVERY_MINUTES: float = 30

    def __post_init__(self) -> None:
        if self.KEEP_LAST != "all" and not (_is_int(self.KEEP_LAST) and int(self.KEEP_LAST) > 0):
            raise ValueError(
                f"CHECKPOINT.PIRL.KEEP_LAST = {self.KEEP_LAST!r}: expected a number from 1, or "
                f"all; name how many of the newest checkpoints stay"
            )
        if not _is_int(self.KEEP_EVERY) or self.KEEP_EVERY < 0:
            raise ValueError(
                f"CHECKPOINT.PIRL.KEEP_EVERY = {self.KEEP_EVERY!r}: expected a number of epochs, "
                f"or 0; give 0 to keep the newest alone"
            )
        if not isinstance(self.EVERY_MINUTES, (int, float)) or not self.EVERY_MINUTES >= 0:
            raise ValueError(
                f"CHECKPOINT.PIRL.EVERY_MINUTES = {self.EVERY_MINUTES!r}: expected minutes, or 0; "
                f"give 0 to save at the end of epochs alone"
            )

    def at_most(self, epochs: int, frequency: int) -> int:
        """How many stay of a run, the final one included, that saves every ``frequency`` epochs."""
        saved = epochs // frequency
        newest = saved if self.KEEP_LAST == "all" else min(saved, int(self.KEEP_LAST))
        every = math.ceil(epochs / math.lcm(self.KEEP_EVERY, frequency)) if self.KEEP_EVERY else 0
        return newest + every + 1


@dataclass
class Written:
    """A checkpoint in the ledger.

    Attributes:
        identity: tells it from another file that has come to bear its name.
        iteration: training steps done.
        phase: training epochs done before the last one, from 0; None in the middle of an epoch.
        final: whether it ends the run.
        folders: name to identity of what belongs to it: shards of the memory bank.
    """

    identity: str
    iteration: int
    phase: int | None
    final: bool
    folders: dict[str, str] = field(default_factory=dict)


class RunFolder:
    """The folder that a run saves to.

    Args:
        folder: ``CHECKPOINT.DIR``.
        keep: which checkpoints stay.
        resumed: the checkpoint that the run goes on from. Without it, or where it is none of those
            that the ledger lists, what is in the folder is another run's and stays.

    Attributes:
        writing: names that the run was about to write when it last said so: what a kill left of
            them is the run's, too.
    """

    def __init__(self, folder: Path, keep: Keep, resumed: Path | None = None) -> None:
        self.folder = folder
        self.keep = keep
        self.written, self.writing = _read_ledger(folder / LEDGER)
        if resumed is None or not self._wrote(resumed):
            self.written, self.writing = {}, []

    def _wrote(self, path: Path) -> bool:
        known = self.written.get(path.name)
        return path.name in self.writing or (known is not None and known.identity == identity(path))

    def announce(self, name: str) -> None:
        """Put into the ledger what is written next: a checkpoint, or a folder of its shards."""
        if name not in self.writing:
            self.writing.append(name)
        self._write_ledger()

    def remove_orphans(self) -> None:
        """Remove shards whose checkpoint was never written, as the run was killed before."""
        known = {folder for entry in self.written.values() for folder in entry.folders}
        models = [name for name in self.writing if not name.startswith(SHARDS)]
        if not any((self.folder / name).exists() for name in models):
            for name in [name for name in self.writing if name not in {*models, *known}]:
                self._remove(name, identity(self.folder / name))
        for unfinished in (self.folder / SHARDS).glob(f"{UNFINISHED}*"):
            remove(unfinished)

    def record(
        self,
        name: str,
        iteration: int,
        phase: int | None = None,
        final: bool = False,
        folders: tuple[str, ...] = (),
    ) -> None:
        """Put a checkpoint that was just written into the ledger, and remove what need not stay."""
        with_it = {folder: identity(self.folder / folder) for folder in folders}
        self.written[name] = Written(identity(self.folder / name), iteration, phase, final, with_it)
        kept = self._kept(iteration)
        kept_folders = {folder for entry in kept for folder in self.written[entry].folders}
        for old in [name for name in self.written if name not in kept]:
            entry = self.written.pop(old)
            self._remove(old, entry.identity)
            for folder, known in entry.folders.items():
                if folder not in kept_folders:
                    self._remove(folder, known)
        self.writing = []
        self._write_ledger()

    def _kept(self, iteration: int) -> list[str]:
        """Those that stay; of steps that the run has gone back before, only final ones."""
        every, last = self.keep.KEEP_EVERY, self.keep.KEEP_LAST
        order = sorted(
            (name for name, entry in self.written.items() if entry.iteration <= iteration),
            key=lambda name: (self.written[name].iteration, self.written[name].phase is not None),
        )
        newest = order if last == "all" else order[-int(last) :]
        return [
            name
            for name, entry in self.written.items()
            if name in newest
            or entry.final
            or (every and name in order and entry.phase is not None and entry.phase % every == 0)
        ]

    def _remove(self, name: str, known: str) -> None:
        path = self.folder / name
        try:
            if path.exists() and identity(path) == known:
                if path.is_dir():  # whose files go one by one: what a kill leaves is an orphan
                    path = path.rename(path.with_name(f"{UNFINISHED}{path.name}.removed"))
                remove(path)
        except OSError as error:
            logging.root.warning(f"{path} need not stay and could not be removed: {error}")

    def _write_ledger(self) -> None:
        content = {name: asdict(entry) for name, entry in self.written.items()}
        ledger = {"written": content, "writing": self.writing}
        with atomic_write(self.folder / LEDGER) as file:
            file.write(json.dumps(ledger, indent=1).encode())


def identity(path: Path) -> str:
    """Size and checksum of the end of a file; of a folder of shards, those of its manifest."""
    file_path = path / MANIFEST if path.is_dir() else path
    if not file_path.exists():
        return "none"
    size = file_path.stat().st_size
    with file_path.open("rb") as file:
        file.seek(max(0, size - _TAIL))
        return f"{size}-{zlib.crc32(file.read()):08x}"


def _read_ledger(path: Path) -> tuple[dict[str, Written], list[str]]:
    """What the run has written, and what it was writing."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        ledger = {name: Written(**entry) for name, entry in found["written"].items()}
        writing = list(found.get("writing", []))  # earlier versions did not say
        folders = [folder for entry in ledger.values() for folder in entry.folders]
        names = [*ledger, *folders, *writing]
        strange = [name for name in names if not _OURS.fullmatch(name)]
        if strange:
            raise ValueError(f"it lists {strange[0]}")
        return ledger, writing
    except FileNotFoundError:
        return {}, []
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        logging.root.warning(
            f"{path} cannot be read ({error}): the checkpoints in its folder all stay"
        )
        return {}, []


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
