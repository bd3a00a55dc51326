"""``pirl-plugin prepare``: a smaller copy of a folder of images, which is read faster.

The copy has the same folders and names. The same command completes an interrupted copy, copies
changed images again, and deletes copies of removed images.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from torch.utils.data import DataLoader, Dataset

from pirl_plugin.images.decode import UnreadableImageError, decode_image, read_file
from pirl_plugin.images.folders import FolderSource
from pirl_plugin.images.source import content_stamp
from pirl_plugin.system.arguments import WholeNumber, command_parser, user_path
from pirl_plugin.system.console import Progress
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import (
    LOCK,
    UNFINISHED,
    atomic_write,
    claim_folder,
    locked,
    naming_failures,
    remove,
    write_text,
)
from pirl_plugin.system.loader import reading, start_worker
from pirl_plugin.system.processes import usable_cores
from pirl_plugin.system.text import printable
from pirl_plugin.system.watcher import TIMEOUT_MINUTES, Wait, resumable
from pirl_plugin.views.pixels import as_image

_PROBLEMS = "unreadable.txt"
_RECORD = ".prepared.jsonl"  # an Entry on each line; hidden, so that no reader counts it
_BLOCK = 32  # images that a process copies at a time
_JPEG_SUFFIXES = frozenset({".jpg", ".jpeg", ".jfif", ".jpe"})
_MAX_PIXELS = 178_000_000  # PIL's own limit; a process needs about 2 GB for such an image


class Entry(NamedTuple):
    """A line of the record: what a copy was made from.

    Attributes:
        item: name of the image.
        stamp: size and time of the image.
        copy: its file, relative to the folder of the copies.
    """

    item: str
    stamp: str
    copy: str


class Result(NamedTuple):
    """New entries of the record, number of copies written and found, and failures in sentences."""

    entries: list[Entry]
    written: int
    present: int
    problems: list[str]


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 1 if no image could be copied, else 0."""
    options = _parse(arguments)
    source = options.input.resolve()
    out = options.output.resolve()
    if source.is_file():
        raise Refused(f"IN = {source}: expected a folder of images; give the folder of the file")
    images = FolderSource(source, all_splits=True)
    if out == source or source in out.parents:
        raise Refused(f"OUT = {out}: expected a folder outside IN = {source}")
    with locked(out, "OUT"):
        return _prepare(source, out, images, options)


def _prepare(source: Path, out: Path, images: FolderSource, options: argparse.Namespace) -> int:
    _claim(out, source, options)
    record = _read_record(out)
    copies = _Copies(images, out, options, record)
    num_removed = _forget_removed(out, record, copies.items())
    try:
        with resumable():
            total = _copy_all(copies, len(images), options.workers, out / _RECORD)
    finally:
        for unfinished in out.glob(f"{UNFINISHED}*"):  # of killed workers
            remove(unfinished)
    removed = f", {num_removed} files of removed images deleted" if num_removed else ""
    print(
        f"{out}: {total.written} images copied, {total.present} already there, "
        f"{len(total.problems)} failed{removed}"
    )
    (out / _PROBLEMS).unlink(missing_ok=True)  # of an earlier call
    if total.problems:
        lines = "".join(f"{printable(problem)}\n" for problem in total.problems)
        write_text(out / _PROBLEMS, lines)
        print(f"{out / _PROBLEMS} lists the failed images")
    return int(total.written + total.present == 0)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = command_parser(
        "prepare",
        "Make a smaller copy of a folder of images, with the same folders and names.",
        "IMAGENET/train IMAGENET256/train",
    )
    add = parser.add_argument
    add("input", metavar="IN", type=user_path, help="folder of images")
    add("output", metavar="OUT", type=user_path, help="new folder, or an incomplete copy")
    add("--size", type=WholeNumber(1), default=256, help="shorter side of a copy, pixels")
    add("--quality", type=WholeNumber(1, 95), metavar="1…95", default=90, help="JPEG quality")
    add(
        "--workers", type=WholeNumber(0), default=usable_cores(),
        help="number of processes; 0: none but this one",
    )  # fmt: skip
    return parser.parse_args(arguments)


def _claim(out: Path, source: Path, options: argparse.Namespace) -> None:
    """Check that a folder is empty, or has copies of the same folder and kind."""
    if {LOCK} < {path.name for path in out.iterdir()} and not (out / _RECORD).is_file():
        raise Refused(
            f"OUT = {out} holds files without a record of {Path(_RECORD).name}: expected a new or "
            f"empty folder, or copies of this command; name another folder, or remove this one"
        )
    settings: dict[str, object] = {
        "source": str(source),
        "size": options.size,
        "quality": options.quality,
    }
    claim_folder(out, settings)


def _read_record(out: Path) -> dict[str, Entry]:
    """Return the entries of the record by item, the last one of each.

    Raises:
        Refused: it names a file outside of the folder.
    """
    entries = {}
    if (out / _RECORD).is_file():
        for line in (out / _RECORD).read_text().splitlines():
            with suppress(ValueError, TypeError):  # the last line of a killed process
                entry = Entry(*json.loads(line))
                entries[entry.item] = entry
    for _, _, copy in entries.values():
        if os.path.isabs(copy) or ".." in Path(copy).parts:
            raise Refused(f"{out / _RECORD} names {copy}: expected files in its own folder")
    return entries


def _forget_removed(out: Path, record: dict[str, Entry], items: set[str]) -> int:
    """Remove from the record the images that are gone, and delete their copies.

    An image whose copy has the name of another image now, such as a new ``a.png.jpg`` beside
    ``a.png``, is removed from the record too, and copied again.

    Returns:
        Number of deleted files.
    """
    num_removed = 0
    for item, _, copy in list(record.values()):
        if item not in items and copy not in items:  # otherwise, it is the copy of another image
            num_removed += (out / copy).is_file()
            (out / copy).unlink(missing_ok=True)
        is_of_other = copy != item and copy in items
        if item not in items or is_of_other:
            del record[item]
    with atomic_write(out / _RECORD) as file:
        for entry in record.values():
            file.write(f"{json.dumps(entry)}\n".encode())
    return num_removed


def _copy_all(copies: _Copies, num_images: int, workers: int, record: Path) -> Result:
    """Make all copies, with a progress line, and record each block of them."""
    written = 0
    present = 0
    problems: list[str] = []
    loader = DataLoader(copies, None, num_workers=workers, worker_init_fn=start_worker)
    with closing(Progress("copies", num_images)) as progress:
        with reading(loader, Wait([copies], TIMEOUT_MINUTES)) as results:
            for result in results:
                lines = "".join(f"{json.dumps(entry)}\n" for entry in result.entries)
                with naming_failures(record), record.open("a") as file:
                    file.write(lines)
                written += result.written
                present += result.present
                problems += result.problems
                progress.update(result.written + result.present + len(result.problems))
    return Result([], written, present, problems)


class _Copies(Dataset[Result]):
    """Blocks of images; a loader's worker copies a block when it reads it.

    Args:
        images: the images.
        out: folder of the copies.
        options: of the command.
        record: what an earlier call wrote, by item.
    """

    def __init__(
        self,
        images: FolderSource,
        out: Path,
        options: argparse.Namespace,
        record: dict[str, Entry],
    ) -> None:
        self._record = record
        self._images = images
        self._out = out
        self._options = options

    def __len__(self) -> int:
        return math.ceil(len(self._images) / _BLOCK)

    def __getitem__(self, block: int) -> Result:
        with warnings.catch_warnings():  # PIL warns below its limit, too
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            return self._copy(block)

    def items(self) -> set[str]:
        """Return the names of all images."""
        return set(map(self._name, range(len(self._images))))

    def _rows(self, block: int) -> range:
        start = block * _BLOCK
        return range(start, min(start + _BLOCK, len(self._images)))

    def _is_current(self, item: str, stamp: str) -> bool:
        """Return whether a copy exists, and its image has not changed."""
        entry = self._record.get(item)
        return entry is not None and entry.stamp == stamp and (self._out / entry.copy).is_file()

    def being_read(self) -> list[str]:
        """Return the paths of the images that are being copied at this moment."""
        return self._images.being_read()

    def _name(self, row: int) -> str:
        return os.path.relpath(self._images.path_of(row), self._images.path)

    def _jpeg_name(self, row: int) -> str:
        """Return the name of an image's copy if it is a JPEG; no other copy has this name."""
        path = self._images.path_of(row)
        if Path(path).suffix.lower() in _JPEG_SUFFIXES:
            return self._name(row)
        ending = ".jpg"
        while os.path.exists(f"{path}{ending}"):  # such as a.png beside another image a.png.jpg
            ending = f".copy{ending}"
        return f"{self._name(row)}{ending}"

    def _remove_copies(self, row: int) -> None:
        """Delete the copies of an image, by their names in the record or without one."""
        names = {self._name(row), self._jpeg_name(row)}
        if entry := self._record.get(self._name(row)):
            names.add(entry.copy)
        for name in names:
            (self._out / name).unlink(missing_ok=True)

    def _resized(
        self, rows: Sequence[int], problems: list[str]
    ) -> Iterator[tuple[int, bytes | bytearray, str]]:
        """Yield row, content and added extension of each readable image."""
        for row in rows:
            try:
                with self._images.reading(row):
                    content, extension = self._resized_copy(row)
            except (OSError, ValueError, MemoryError) as error:
                reason = error or "too little memory"
                problems.append(f"{self._images.path_of(row)}: {reason}")
                if isinstance(error, UnreadableImageError):
                    self._remove_copies(row)  # of the image before it broke
            else:
                yield row, content, extension

    def _resized_copy(self, row: int) -> tuple[bytes | bytearray, str]:
        """Return an image's smaller copy, a JPEG, and ``.jpg`` if its name needs this extension.

        If the shorter side of the image has at most ``size`` pixels, its bytes do not change.
        """
        size = self._options.size
        path = self._images.path_of(row)
        data = read_file(path)
        pixels = decode_image(data, scaled_to=2 * size, max_pixels=_MAX_PIXELS)
        height, width = pixels.shape[1:]
        if min(height, width) <= size:
            return data, ""
        scale = size / min(height, width)
        smaller = (max(size, round(width * scale)), max(size, round(height * scale)))
        image = as_image(pixels)
        file = io.BytesIO()
        resized = image.resize(smaller, Image.Resampling.LANCZOS)
        resized.save(file, "JPEG", quality=self._options.quality)
        return file.getvalue(), "" if Path(path).suffix.lower() in _JPEG_SUFFIXES else ".jpg"

    def _copy(self, block: int) -> Result:
        """Make the missing copies of a block of images."""
        stamps = {row: content_stamp(self._images.path_of(row)) for row in self._rows(block)}
        missing = [row for row in stamps if not self._is_current(self._name(row), stamps[row])]
        problems: list[str] = []
        entries = []
        for row, content, extension in self._resized(missing, problems):
            name = self._jpeg_name(row) if extension else self._name(row)
            target = self._out / name
            # A killed process leaves an unfinished file, not a part of a copy.
            unfinished = self._out / f"{UNFINISHED}{block}"
            with naming_failures(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                unfinished.write_bytes(content)
                self._remove_copies(row)  # of the image before it changed; it may have another name
                unfinished.replace(target)
            entries.append(Entry(self._name(row), stamps[row], name))
        return Result(entries, len(entries), len(stamps) - len(missing), problems)
