"""``pirl-plugin prepare``: a smaller copy of a folder of images, read several times as fast.

The copy has the same folders and names, or is a few large tars (``--shards``). Interrupted, it goes
on with the same command.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import tarfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from tqdm import tqdm

from pirl_plugin.files import atomic_write
from pirl_plugin.images.decode import UnreadableImageError, decode_image, read_file
from pirl_plugin.images.folders import class_folders
from pirl_plugin.images.names import INDEX, SETTINGS_FILE
from pirl_plugin.images.shards import scan_tar, write_index
from pirl_plugin.images.sources import FolderSource

_PROBLEMS = "unreadable.txt"
_BLOCK = 32  # images that a process copies at a time
_PER_SHARD = 5000
_SHOWN = 5
_JPEG_SUFFIXES = frozenset({".jpg", ".jpeg", ".jfif", ".jpe"})


class Settings(NamedTuple):
    """What to make: folders, shorter side of a copy in pixels, quality of the JPEGs."""

    source: Path
    out: Path
    size: int
    quality: int


class Result(NamedTuple):
    """Copies made and found, and a sentence for each image that has none."""

    written: int
    present: int
    problems: list[str]


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: after ``prepare``.

    Returns:
        0; 1 where no image could be copied.

    Raises:
        FileNotFoundError: there is no such folder of images.
        ValueError: the output folder is not one of this command, or a tar in it is damaged.
    """
    options = _parser().parse_args(arguments)
    source, out = options.input.resolve(), options.output.resolve()
    if out == source or source in out.parents:
        raise ValueError(f"OUT = {out}: expected a folder outside IN = {source}")
    settings = Settings(source, out, options.size, options.quality)
    images = FolderSource(source)
    layout = {"shards": options.shards, "images": len(images)} if options.shards else {}
    _claim(settings, layout)
    labels = images.labels().tolist()
    members = [
        (os.path.relpath(images.path_of(row), source), labels[row]) for row in range(len(images))
    ]
    work, count = (_write_shard, options.shards) if options.shards else (_copy_block, _BLOCK)
    (out / INDEX).unlink(missing_ok=True)  # of the tars as they were
    if not options.shards and min(labels) >= 0:  # so that a class without a copy keeps its number
        for name in class_folders(source):
            (out / name).mkdir(exist_ok=True)
    total = _run(work, settings, members, count, options.workers)
    if options.shards:
        write_index(out)
    return _report(settings, total)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pirl-plugin prepare",
        description="Make a smaller copy of a folder of images, with the same folders and names.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("input", metavar="IN", type=Path, help="folder of images")
    add("output", metavar="OUT", type=Path, help="new folder, or one to complete")
    add("--size", type=_positive, default=256, help="shorter side of a copy, pixels")
    add(
        "--quality", type=int, choices=range(1, 96), metavar="1…95", default=90, help="of the JPEGs"
    )
    add("--workers", type=_positive, default=len(os.sched_getaffinity(0)), help="processes")
    add(
        "--shards", type=_positive, nargs="?", const=_PER_SHARD, metavar="N",
        help=f"write tars of N images (WebDataset's layout; {_PER_SHARD} if N is left out)",
    )  # fmt: skip
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number of at least 1")
    return int(text)


def _claim(settings: Settings, layout: dict[str, int]) -> None:
    """Take a new or empty folder, or one that was begun with the same settings.

    Raises:
        ValueError: it holds something else.
    """
    file = settings.out / SETTINGS_FILE
    wanted = {
        "source": str(settings.source), "size": settings.size, "quality": settings.quality, **layout
    }  # fmt: skip
    if file.is_file():
        found = json.loads(file.read_text())
        if found != wanted:
            raise ValueError(
                f"OUT = {settings.out} was begun with {found}: expected {wanted}; name another "
                f"folder, or repeat the command that began it"
            )
    elif settings.out.exists() and any(settings.out.iterdir()):
        raise ValueError(f"OUT = {settings.out} holds other files: expected a new or empty folder")
    else:
        with atomic_write(file) as new:
            new.write(json.dumps(wanted).encode())


def _run(
    work: Callable[[Settings, int, list[tuple[str, int]]], Result],
    settings: Settings,
    members: list[tuple[str, int]],
    count: int,
    workers: int,
) -> Result:
    """Give ``count`` images at a time to processes, with a bar."""
    written, present, problems = 0, 0, []
    with (
        ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool,
        tqdm(total=len(members), unit=" images", mininterval=1) as bar,
    ):
        parts = enumerate(range(0, len(members), count))
        pending = [pool.submit(work, settings, n, members[at : at + count]) for n, at in parts]
        try:
            for done in as_completed(pending):
                result = done.result()
                written, present = written + result.written, present + result.present
                problems += result.problems
                bar.update(result.written + result.present + len(result.problems))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return Result(written, present, sorted(problems))


def _report(settings: Settings, total: Result) -> int:
    print(
        f"{total.written} images written, {total.present} found from before, "
        f"{len(total.problems)} without a copy: {settings.out}"
    )
    if total.problems:
        lines = [each.encode("utf-8", "backslashreplace") for each in total.problems]
        (settings.out / _PROBLEMS).write_bytes(b"\n".join(lines) + b"\n")
        for line in lines[:_SHOWN]:
            print(f"  {line.decode()}")
        print(f"all are listed in {settings.out / _PROBLEMS}")
    return int(total.written + total.present == 0)


def resized_copy(path: str, size: int, quality: int) -> tuple[bytes | bytearray, str]:
    """Read an image and shrink its shorter side to ``size`` pixels, as a JPEG.

    Args:
        path: of the file.
        size: pixels.
        quality: of the JPEG, 1 … 95.

    Returns:
        The encoded copy, and what is to be added to the file's name: ``.jpg`` where the format
        changed. An image that is no larger is kept byte for byte.

    Raises:
        UnreadableImageError: it cannot be decoded.
        OSError: it cannot be read.
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


def _copy_block(settings: Settings, number: int, members: list[tuple[str, int]]) -> Result:
    """Make the copies of a block of images, those that are missing."""
    written, present, problems = 0, 0, []
    for name, _ in members:
        changed = settings.out / f"{name}.jpg"
        other = (settings.source / f"{name}.jpg").exists()  # whose copy would have this name
        places = [settings.out / name, *([] if other else [changed])]
        if any(place.is_file() and place.stat().st_size for place in places):
            present += 1
            continue
        try:
            content, suffix = resized_copy(
                str(settings.source / name), settings.size, settings.quality
            )
            if suffix and other:
                raise UnreadableImageError(f"its copy would have the name of {name}.jpg; rename it")
        except (OSError, ValueError, MemoryError) as error:
            problems.append(f"{settings.source / name}: {error or 'too little memory'}")
            continue
        target = changed if suffix else settings.out / name
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f".unfinished.{number}")
        unfinished.write_bytes(content)
        unfinished.replace(target)
        written += 1
    return Result(written, present, problems)


def _write_shard(settings: Settings, number: int, members: list[tuple[str, int]]) -> Result:
    """Write one tar of copies, unless it is there from an earlier run."""
    target = settings.out / f"shard-{number:06d}.tar"
    if target.exists():
        held = len(scan_tar(target, 0)[0])
        lost = len(members) - held
        return Result(0, held, [f"{target} lacks {lost} images; remove it to try again"] * lost)
    problems: list[str] = []
    keys: set[str] = set()
    with (
        atomic_write(target) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, label in members:
            try:
                content, suffix = resized_copy(
                    str(settings.source / name), settings.size, settings.quality
                )
            except (OSError, ValueError, MemoryError) as error:
                problems.append(f"{settings.source / name}: {error or 'too little memory'}")
                continue
            # WebDataset's key ends at the first dot of the name, so it may hold none.
            key = str(Path(name).with_name(Path(name).stem.replace(".", "_")))
            key = f"{key}_{len(keys)}" if key in keys else key
            keys.add(key)
            _add(tar, f"{key}{suffix or Path(name).suffix.lower()}", content)
            _add(tar, f"{key}.cls", str(label).encode())
    return Result(len(keys), 0, problems)


def _add(tar: tarfile.TarFile, name: str, content: bytes | bytearray) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
