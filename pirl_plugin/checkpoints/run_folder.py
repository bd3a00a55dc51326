"""The checkpoints in a run's folder: written whole, kept or removed, and the newest that loads."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pirl_plugin.checkpoints.read import check_sums, open_checkpoint
from pirl_plugin.files import remove, sha256_of

SECTION = "pirl_plugin"
"""Key of what this plugin adds to a checkpoint of the host."""
CHECKPOINT_NAME = re.compile(
    r"model_(final_checkpoint_)?(?P<kind>phase|iteration)(?P<number>\d+)\.torch"
)
_SHARDS = "memory_bank"  # the folder of the folders of shards
# Z is NaN until the first batch, and always with estimators that have none.
_MAY_BE_NAN = ("norm_constant",)
_BLOCK = 1 << 24  # elements looked at together: 64 MB of float32


@dataclass(frozen=True)
class Keep:
    """Which checkpoints stay: the section ``CHECKPOINT.PIRL``.

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
        for name, least in (("KEEP_LAST", 1), ("KEEP_EVERY", 0), ("EVERY_MINUTES", 0)):
            value = getattr(self, name)
            kinds = (int, float) if name == "EVERY_MINUTES" else (int,)
            fits = isinstance(value, kinds) and not isinstance(value, bool) and value >= least
            if not fits and (name, value) != ("KEEP_LAST", "all"):
                also = ", or all" if name == "KEEP_LAST" else ""
                raise ValueError(
                    f"CHECKPOINT.PIRL.{name} = {value!r}: expected a number from {least}{also}; "
                    f"leave it out for {type(self).__dict__[name]}"
                )


@dataclass
class Found:
    """The checkpoint to go on from.

    Attributes:
        path: None where there is none.
        content: of the checkpoint; its tensors are still on the disk.
        final: whether it ends a run.
        skipped: name and fault of each that cannot be loaded.
    """

    path: Path | None = None
    content: dict[str, Any] = field(default_factory=dict)
    final: bool = False
    skipped: dict[str, str] = field(default_factory=dict)


def find_newest(folder: Path, nth: int = 1, skip_final: bool = False) -> Found:
    """Find the newest checkpoint of a run whose every byte is what was saved.

    Args:
        folder: of the run.
        nth: 1 for the newest that loads, 2 for the one before it, …; the oldest at most.
        skip_final: pass over those that end a run.
    """
    opened, found = _opened(folder)
    for name in found.skipped.copy():
        if skip_final and "final" in name:
            del found.skipped[name]
    for _, path, content in sorted(opened, key=lambda each: each[0], reverse=True):
        final = "final" in path.name
        if final and skip_final:
            continue
        try:
            check_sums(path)
            _check_shards(path, content)
        except ValueError as error:
            found.skipped[path.name] = str(error)
            continue
        found.path, found.content, found.final = path, content, final
        nth -= 1
        if nth <= 0:
            break
    return found


def shards_of_step(step: int) -> str:
    """Return the folder of the memory bank's shards of a step, from the run's folder.

    Example:
        >>> shards_of_step(40)
        'memory_bank/step_40'
    """
    return f"{_SHARDS}/step_{step}"


def shards_of(content: Mapping[str, Any]) -> str | None:
    """Return the folder of the shards of a checkpoint, from the run's folder; None without."""
    loss = content.get("loss") or {}
    if "_extra_state" in loss and "norm_constant" in loss and "bank.rows" not in loss:
        return shards_of_step(int(loss["_extra_state"]["step"]))
    return None


class RunFolder:
    """What a run has saved in its folder, and what need not stay of it.

    Args:
        folder: ``CHECKPOINT.DIR``.
        keep: which checkpoints stay.
        resumed: the checkpoint in the folder that the run goes on from. Without it, what is in the
            folder is of another run, and stays.
    """

    def __init__(self, folder: Path, keep: Keep, resumed: Path | None = None) -> None:
        self.folder, self.keep = folder, keep
        self._saved: dict[str, tuple[tuple[int, bool], str | None]] = {}  # name: order, shards
        if resumed is None or resumed.parent.resolve() != folder.resolve():
            return
        opened, found = _opened(folder)
        newest = next(order for order, path, _ in opened if path.name == resumed.name)
        for order, path, content in opened:
            if order <= newest:
                self._saved[path.name] = order, shards_of(content)
        used = {shards_of(content) for _, _, content in opened}
        for shards in (folder / _SHARDS).glob("step_*") if not found.skipped else ():
            if f"{_SHARDS}/{shards.name}" not in used:  # killed before the checkpoint was written
                remove(shards)

    def record(self, content: Mapping[str, Any], name: str) -> None:
        """Enter a checkpoint that was just written, and remove what need not stay."""
        self._saved[name] = _order(content, name), shards_of(content)
        names = sorted(self._saved, key=lambda each: self._saved[each][0])
        last = len(names) if self.keep.KEEP_LAST == "all" else int(self.keep.KEEP_LAST)
        kept = {each for each in names if each in names[-last:] or self._is_kept(each)}
        shards = {self._saved[each][1] for each in kept}
        for old in [each for each in names if each not in kept]:
            _, folder = self._saved.pop(old)
            try:
                remove(self.folder / old)
                if folder is not None and folder not in shards:
                    remove(self.folder / folder)
            except OSError as error:
                logging.root.warning(f"{old} need not stay and could not be removed: {error}")

    def _is_kept(self, name: str) -> bool:
        match = CHECKPOINT_NAME.fullmatch(name)
        assert match is not None, "the host names it"
        every = self.keep.KEEP_EVERY
        return bool(
            match[1] or (every and match["kind"] == "phase" and int(match["number"]) % every == 0)
        )


def check_finite(state: object, what: str) -> None:
    """Refuse to save state from which no run can go on.

    Args:
        state: nested dictionaries, lists and tensors.
        what: what the error calls it.

    Raises:
        FloatingPointError: a tensor holds NaN or infinities; names the first of them.
    """
    bad = [n for n, tensor in _tensors_of(state) if not n.endswith(_MAY_BE_NAN) and _bad(tensor)]
    if bad:
        raise FloatingPointError(
            f"{what} was not saved: expected finite numbers, found NaN or infinities in "
            f"{len(bad)} tensors, the first {bad[0]}; lower the learning rate, and run it "
            f"again to go on from the checkpoint before it"
        )


def _tensors_of(state: object, name: str = "") -> Iterator[tuple[str, Tensor]]:
    if isinstance(state, Tensor):
        yield name, state
    elif isinstance(state, (Mapping, list, tuple)):
        items = state.items() if isinstance(state, Mapping) else enumerate(state)
        for key, value in items:
            yield from _tensors_of(value, f"{name}.{key}" if name else str(key))


def _bad(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.is_meta or tensor.numel() == 0:
        return False
    # The extremes of a block are finite exactly if it is; no second tensor of its size is made.
    blocks = tensor.detach().reshape(-1).split(_BLOCK)
    return not all(bool(torch.isfinite(torch.stack(torch.aminmax(b))).all()) for b in blocks)


def _opened(folder: Path) -> tuple[list[tuple[tuple[int, bool], Path, dict[str, Any]]], Found]:
    """Open all checkpoints: order, path and content of each; those that cannot be are skipped."""
    found, opened = Found(), []
    for path in sorted(folder.glob("model_*.torch")) if folder.is_dir() else ():
        if CHECKPOINT_NAME.fullmatch(path.name):
            try:
                content = open_checkpoint(path)
                opened.append((_order(content, path.name), path, content))
            except (KeyError, TypeError, ValueError) as error:
                found.skipped[path.name] = str(error)
    return opened, found


def _order(content: Mapping[str, Any], name: str) -> tuple[int, bool]:
    """Return steps done, and whether at the end of an epoch, which comes after the middle of it."""
    return int(content["iteration"]), "phase" in name


def _check_shards(path: Path, content: Mapping[str, Any]) -> None:
    """Compare the shards of a checkpoint's bank with the checksums that it holds.

    Raises:
        ValueError: one is missing or another; names it.
    """
    folder = shards_of(content)
    if folder is None:
        return
    known = (content.get(SECTION) or {}).get("shards") or {}
    for name, digest in known.items():
        file = path.parent / folder / Path(name).name
        if not file.is_file():
            raise ValueError(f"{file}, of its memory bank, is missing")
        if sha256_of(file) != digest:
            raise ValueError(f"{file}, of its memory bank, is not what was saved with it")
    if not known:
        raise ValueError(f"it has no checksums of its memory bank in {path.parent / folder}")
