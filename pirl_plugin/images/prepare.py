"""``pirl-plugin prepare``: a smaller copy of a folder of images, read several times as fast.

The copy has the same folders and names, or it is a few large tars (``--shards``). The same command
completes an interrupted copy.
"""

from __future__ import annotations

import argparse
import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from pirl_plugin.arguments import HelpFormatter, user_path, whole_number
from pirl_plugin.failures import Refused
from pirl_plugin.files import RUN_FILE, atomic_write, claim_folder
from pirl_plugin.images.decode import decode_image, read_file
from pirl_plugin.images.folders import class_folders
from pirl_plugin.images.names import INDEX
from pirl_plugin.images.shards import scan_tar, write_index
from pirl_plugin.images.sources import FolderSource

_PROBLEMS = "unreadable.txt"
_BLOCK = 32  # images that a process copies at a time
_PER_SHARD = 5000
_JPEG_SUFFIXES = frozenset({".jpg", ".jpeg", ".jfif", ".jpe"})


class Result(NamedTuple):
    """Number of copies written and found, and a sentence for each image without a copy."""

    written: int
    present: int
    problems: list[str]


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 1 if no image could be copied, else 0."""
    parser = argparse.ArgumentParser(
        prog="pirl-plugin prepare",
        description="Make a smaller copy of a folder of images, with the same folders and names.\n"
        "Example: pirl-plugin prepare IMAGENET/train IMAGENET256/train",
        formatter_class=HelpFormatter,
    )
    add = parser.add_argument
    add("input", metavar="IN", type=user_path, help="folder of images")
    add("output", metavar="OUT", type=user_path, help="new folder, or an incomplete copy")
    add("--size", type=whole_number(1), default=256, help="shorter side of a copy, pixels")
    add("--quality", type=whole_number(1, 95), metavar="1…95", default=90, help="JPEG quality")
    add("--workers", type=whole_number(1), default=os.cpu_count(), help="number of processes")
    add(
        "--shards", type=whole_number(1), nargs="?", const=_PER_SHARD, metavar="N",
        help=f"write tars of N images in WebDataset's layout (default N: {_PER_SHARD})",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    source, out = options.input.resolve(), options.output.resolve()
    images = FolderSource(source)
    if out == source or source in out.parents:
        raise Refused(f"OUT = {out}: expected a folder outside IN = {source}")
    if out.is_dir() and any(out.iterdir()) and not (out / RUN_FILE).is_file():
        raise Refused(f"OUT = {out} holds other files: expected a new or empty folder")
    settings = {"source": str(source), "size": options.size, "quality": options.quality}
    layout = {"shards": options.shards, "images": len(images)} if options.shards else {}
    claim_folder(out, settings | layout)
    (out / INDEX).unlink(missing_ok=True)  # the index of an earlier copy
    labels = images.labels().tolist()
    for name in [] if options.shards or min(labels) < 0 else class_folders(source):
        (out / name).mkdir(exist_ok=True)  # a class without a copy keeps its number
    copies = _Copies(images, labels, out, options)
    written, present, problems = 0, 0, []
    with tqdm(total=len(images), unit=" images", mininterval=1) as bar:
        for result in DataLoader(copies, None, num_workers=options.workers):
            written, present = written + result.written, present + result.present
            problems += result.problems
            bar.update(result.written + result.present + len(result.problems))
    if options.shards:
        write_index(out)
    print(f"{out}: {written} images copied, {present} already there, {len(problems)} failed")
    if problems:
        (out / _PROBLEMS).write_text("\n".join([*problems, ""]), errors="backslashreplace")
        print(f"{out / _PROBLEMS} lists the failed images")
    return int(written + present == 0)


def _resized_copy(path: str, size: int, quality: int) -> tuple[bytes | bytearray, str]:
    """Return an image's smaller copy, a JPEG, and ``.jpg`` if its name needs this extension.

    If the shorter side of the image has at most ``size`` pixels, its bytes do not change.
    """
    data = read_file(path)
    pixels = decode_image(data, scaled_to=2 * size)
    height, width = pixels.shape[1:]
    if min(height, width) <= size:
        return data, ""
    scale = size / min(height, width)
    smaller = (max(size, round(width * scale)), max(size, round(height * scale)))
    image = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
    file = io.BytesIO()
    image.resize(smaller, Image.Resampling.LANCZOS).save(file, "JPEG", quality=quality)
    return file.getvalue(), "" if Path(path).suffix.lower() in _JPEG_SUFFIXES else ".jpg"


class _Copies(Dataset[Result]):
    """Blocks of images, or shards; a loader's worker copies an item when it reads it."""

    def __init__(
        self, images: FolderSource, labels: list[int], out: Path, options: argparse.Namespace
    ) -> None:
        self._images, self._labels, self._out, self._options = images, labels, out, options
        self._count = options.shards or _BLOCK

    def __len__(self) -> int:
        return -(-len(self._images) // self._count)

    def __getitem__(self, block: int) -> Result:
        rows = range(len(self._images))[block * self._count : (block + 1) * self._count]
        return self._write_shard(block, rows) if self._options.shards else self._copy(block, rows)

    def _name(self, row: int) -> str:
        return os.path.relpath(self._images.path_of(row), self._images.path)

    def _resized(
        self, rows: Sequence[int], problems: list[str]
    ) -> Iterator[tuple[int, bytes | bytearray, str]]:
        """Yield row, content and added extension of each readable image."""
        for row in rows:
            path = self._images.path_of(row)
            try:
                yield row, *_resized_copy(path, self._options.size, self._options.quality)
            except (OSError, ValueError, MemoryError) as error:
                problems.append(f"{path}: {error or 'too little memory'}")

    def _copy(self, block: int, rows: Sequence[int]) -> Result:
        """Make the missing copies of a block of images."""
        problems: list[str] = []
        places = [[self._out / f"{self._name(row)}{end}" for end in ("", ".jpg")] for row in rows]
        missing = [
            row for row, pair in zip(rows, places, strict=True) if not any(map(Path.exists, pair))
        ]
        for row, content, end in self._resized(missing, problems):
            target = self._out / f"{self._name(row)}{end}"
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished = target.with_name(f".unfinished.{block}")
            unfinished.write_bytes(content)
            unfinished.replace(target)
        written = len(missing) - len(problems)
        return Result(written, len(rows) - len(missing), problems)

    def _write_shard(self, block: int, rows: Sequence[int]) -> Result:
        """Write a tar of copies, unless an earlier run has written it."""
        target = self._out / f"shard-{block:06d}.tar"
        problems: list[str] = []
        if target.exists():
            held = len(scan_tar(target, 0)[0])
            lost = len(rows) - held
            return Result(0, held, [f"{target}: {lost} images failed; remove it to retry"] * lost)
        with (
            atomic_write(target) as file,
            tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            keys: set[str] = set()
            for row, content, end in self._resized(rows, problems):
                name = Path(self._name(row))
                # WebDataset's key ends at the first dot of the name, so it may not contain a dot.
                key = str(name.with_name(name.stem.replace(".", "_")))
                key = f"{key}_{len(keys)}" if key in keys else key
                keys.add(key)
                _add(tar, f"{key}{end or name.suffix.lower()}", content)
                _add(tar, f"{key}.cls", str(self._labels[row]).encode())
        return Result(len(keys), 0, problems)


def _add(tar: tarfile.TarFile, name: str, content: bytes | bytearray) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
