"""``pirl-plugin prepare``: a smaller copy of a folder of images, which is read faster.

The copy has the same folders and names, or it is a few large tars (``--shards``). The same command
completes an interrupted copy.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import tarfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from torch.utils.data import DataLoader, Dataset

from pirl_plugin.images.decode import decode_image, read_file
from pirl_plugin.images.folders import FolderSource
from pirl_plugin.images.names import INDEX
from pirl_plugin.images.shards import scan_tar, write_index
from pirl_plugin.system.arguments import command_parser, user_path, whole_number
from pirl_plugin.system.console import Progress
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import RUN_FILE, atomic_write, claim_folder
from pirl_plugin.system.loader import WatchedBatches, start_worker, wait_for_images
from pirl_plugin.system.processes import usable_cores

_PROBLEMS = "unreadable.txt"
_BLOCK = 32  # images that a process copies at a time
_PER_SHARD = 5000
_JPEG_SUFFIXES = frozenset({".jpg", ".jpeg", ".jfif", ".jpe"})
_MAX_PIXELS = 178_000_000  # PIL's own limit; a process needs about 2 GB for such an image


class Result(NamedTuple):
    """Number of copies written and found, and a sentence for each image without a copy."""

    written: int
    present: int
    problems: list[str]


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 1 if no image could be copied, else 0."""
    options = _parse(arguments)
    source = options.input.resolve()
    out = options.output.resolve()
    images = FolderSource(source, all_splits=not options.shards)
    _claim(out, source, len(images), options)
    total = _copy_all(_Copies(images, out, options), len(images), options.workers)
    if options.shards:
        write_index(out)
    print(
        f"{out}: {total.written} images copied, {total.present} already there, "
        f"{len(total.problems)} failed"
    )
    (out / _PROBLEMS).unlink(missing_ok=True)  # of an earlier call
    if total.problems:
        text = "\n".join([*total.problems, ""])
        (out / _PROBLEMS).write_text(text, errors="backslashreplace")
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
    add("--size", type=whole_number(1), default=256, help="shorter side of a copy, pixels")
    add("--quality", type=whole_number(1, 95), metavar="1…95", default=90, help="JPEG quality")
    add(
        "--workers", type=whole_number(0), default=usable_cores(),
        help="number of processes; 0: none but this one",
    )  # fmt: skip
    add(
        "--shards", type=whole_number(1), nargs="?", const=_PER_SHARD, metavar="N",
        help=f"write tars of N images in WebDataset's layout (default N: {_PER_SHARD})",
    )  # fmt: skip
    return parser.parse_args(arguments)


def _claim(out: Path, source: Path, num_images: int, options: argparse.Namespace) -> None:
    """Make the folder of the copies, or check that it has copies of the same images and kind."""
    if out == source or source in out.parents:
        raise Refused(f"OUT = {out}: expected a folder outside IN = {source}")
    if out.is_dir() and any(out.iterdir()) and not (out / RUN_FILE).is_file():
        raise Refused(f"OUT = {out} holds other files: expected a new or empty folder")
    settings: dict[str, object] = {
        "source": str(source),
        "size": options.size,
        "quality": options.quality,
    }
    if options.shards:
        settings |= {"shards": options.shards, "images": num_images}
    claim_folder(out, settings)
    (out / INDEX).unlink(missing_ok=True)  # the index of an earlier copy


def _copy_all(copies: _Copies, num_images: int, workers: int) -> Result:
    """Make all copies, with a progress line."""
    written = 0
    present = 0
    problems: list[str] = []
    with Progress("copies", num_images) as progress:
        loader = DataLoader(copies, None, num_workers=workers, worker_init_fn=start_worker)
        for result in WatchedBatches(loader, lambda: wait_for_images([copies])):
            written += result.written
            present += result.present
            problems += result.problems
            progress.update(result.written + result.present + len(result.problems))
    return Result(written, present, problems)


class _Copies(Dataset[Result]):
    """Blocks of images, or shards; a loader's worker copies an item when it reads it."""

    def __init__(self, images: FolderSource, out: Path, options: argparse.Namespace) -> None:
        self._images = images
        self._out = out
        self._options = options
        self._per_item = options.shards or _BLOCK

    def __len__(self) -> int:
        return math.ceil(len(self._images) / self._per_item)

    def __getitem__(self, item: int) -> Result:
        start = item * self._per_item
        rows = range(start, min(start + self._per_item, len(self._images)))
        with warnings.catch_warnings():  # PIL warns below its limit, too
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            if self._options.shards:
                return self._write_shard(item, rows)
            return self._copy(item, rows)

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
        image = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
        file = io.BytesIO()
        resized = image.resize(smaller, Image.Resampling.LANCZOS)
        resized.save(file, "JPEG", quality=self._options.quality)
        return file.getvalue(), "" if Path(path).suffix.lower() in _JPEG_SUFFIXES else ".jpg"

    def _copy(self, block: int, rows: Sequence[int]) -> Result:
        """Make the missing copies of a block of images."""
        missing = []
        for row in rows:
            unchanged = self._out / self._name(row)
            jpeg = self._out / self._jpeg_name(row)
            if not unchanged.exists() and not jpeg.exists():
                missing.append(row)
        problems: list[str] = []
        for row, content, extension in self._resized(missing, problems):
            target = self._out / (self._jpeg_name(row) if extension else self._name(row))
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished = target.with_name(f".unfinished.{block}")
            unfinished.write_bytes(content)
            unfinished.replace(target)
        return Result(len(missing) - len(problems), len(rows) - len(missing), problems)

    def _write_shard(self, number: int, rows: Sequence[int]) -> Result:
        """Write a tar of copies, unless an earlier run has written it."""
        target = self._out / f"shard-{number:06d}.tar"
        if target.exists():
            present = len(scan_tar(target, 0, Counter()).names)
            failed = len(rows) - present
            problem = f"{target}: {failed} images failed; remove it to retry"
            return Result(0, present, [problem] * failed)
        problems: list[str] = []
        keys: set[str] = set()
        with (
            atomic_write(target) as file,
            tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for row, content, extension in self._resized(rows, problems):
                name = Path(self._name(row))
                # WebDataset's key ends at the first dot of the name, so it may not contain a dot.
                key = str(name.with_name(name.stem.replace(".", "_")))
                while key in keys:  # a longer key can be that of another image, too
                    key = f"{key}_{len(keys)}"
                keys.add(key)
                _add(tar, f"{key}{extension or name.suffix.lower()}", content)
                class_folder, separator, _ = self._name(row).partition(os.sep)
                if separator:
                    _add(tar, f"{key}.cls", os.fsencode(class_folder))
        return Result(len(keys), 0, problems)


def _add(tar: tarfile.TarFile, name: str, content: bytes | bytearray) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
