"""What the processes of ``pirl-plugin prepare`` do: a block of images, or a tar of them."""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from pirl_plugin.files import atomic_write
from pirl_plugin.images.resized import (
    CHANGED_SUFFIX,
    Copy,
    is_prepared,
    resized_copy,
    write_new,
)
from pirl_plugin.images.sources.shard_index import scan_tar

_LONGEST_NAME = 255  # bytes, on all common file systems


@dataclass(frozen=True)
class Settings:
    """What to make.

    Attributes:
        source: folder of the images.
        out: folder of the copies.
        size: shorter side of a copy, pixels.
        quality: of the JPEGs.
    """

    source: Path
    out: Path
    size: int
    quality: int


@dataclass
class Result:
    """What was done with a block of images.

    Attributes:
        written: copies made now.
        present: copies found from an earlier run.
        in_the_way: images without a copy because of another file in its place.
        problems: a sentence for each image that has no copy.
    """

    written: int = 0
    present: int = 0
    in_the_way: int = 0
    problems: list[str] = field(default_factory=list)

    def block(self, problem: str) -> None:
        """Note an image without a copy because of another file in its place."""
        self.in_the_way += 1
        self.problems.append(problem)


def copy_block(settings: Settings, names: list[str]) -> Result:
    """Make the copies of a block of images, those that are missing.

    Args:
        settings: what to make.
        names: of the images, relative to the source.

    Raises:
        OSError: a copy cannot be written.
    """
    result = Result()
    for name in names:
        present = _present(settings, name)
        if present is not None:
            if is_prepared(present, settings.size):
                result.present += 1
            else:
                result.block(f"{present} is in the way, no copy of this run; remove it")
            continue
        copy = _copy(settings, name, result)
        if copy is None:
            continue
        target = settings.out / f"{name}{copy.suffix}"
        if not _is_short(target.name):
            problem = f"its copy's name, with {copy.suffix}, is too long; shorten it"
            result.problems.append(f"{settings.source / name}: {problem}")
            continue
        if copy.suffix and _is_anothers(settings, name):
            result.block(
                f"{settings.source / name}: the image {target.name} beside it is in the way of a "
                f"copy of this name; rename one of them"
            )
            continue
        try:
            write_new(target, copy.content)
        except FileExistsError:
            result.block(f"{target} is in the way; remove it")
        else:
            result.written += 1
    return result


def _copy(settings: Settings, name: str, result: Result) -> Copy | None:
    """Copy of an image; None where it cannot be read, which ``result`` tells."""
    try:
        return resized_copy(str(settings.source / name), settings.size, settings.quality)
    except (OSError, ValueError, MemoryError) as error:
        result.problems.append(f"{settings.source / name}: {error or 'too little memory'}")
        return None


def _present(settings: Settings, name: str) -> Path | None:
    """The file that is where a copy of ``name`` would be, or None; an empty one is removed."""
    names = [name] if _is_anothers(settings, name) else [name, f"{name}{CHANGED_SUFFIX}"]
    for target in (settings.out / each for each in names if _is_short(os.path.basename(each))):
        if target.is_file() and target.stat().st_size == 0:  # of a machine that lost power
            target.unlink()
        if os.path.lexists(target):
            return target
    return None


def _is_short(name: str) -> bool:
    return len(os.fsencode(name)) <= _LONGEST_NAME


def _is_anothers(settings: Settings, name: str) -> bool:
    """Whether a copy of ``name`` in another format would have the name of another image's copy."""
    return os.path.lexists(settings.source / f"{name}{CHANGED_SUFFIX}")


def write_shard(settings: Settings, tar_name: str, members: list[tuple[str, int]]) -> Result:
    """Write one tar of copies; of one that is there, tell which images it holds.

    Args:
        settings: what to make.
        tar_name: its name in the folder.
        members: name, relative to the source, and class of each image.

    Raises:
        OSError: it cannot be written.
        ValueError: the one that is there is not whole.
    """
    target = settings.out / tar_name
    keys = _keys([name for name, _ in members])
    if target.exists():
        return _found(settings, target, dict(zip(keys, members, strict=True)))
    result = Result()
    with (
        atomic_write(target) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for key, (name, label) in zip(keys, members, strict=True):
            copy = _copy(settings, name, result)
            if copy is None:
                continue
            _add(tar, f"{key}{copy.suffix or Path(name).suffix.lower()}", copy.content)
            _add(tar, f"{key}.cls", str(label).encode())
            result.written += 1
    return result


def _found(settings: Settings, tar: Path, members: dict[str, tuple[str, int]]) -> Result:
    """What was done when a tar was written; ``members`` are by key."""
    result = Result()
    held = {os.path.splitext(name)[0] for name in scan_tar(tar, 0)[0]}
    for key, (name, _) in members.items():
        if key in held:
            result.present += 1
        elif _copy(settings, name, result) is not None:
            result.problems.append(
                f"{settings.source / name}: could not be read when {tar.name} was written, and can "
                f"be now; remove that tar, and repeat the command"
            )
    return result


def _keys(names: list[str]) -> list[str]:
    """Key of each image of a tar, whatever can be read; WebDataset's have no dot in the name."""
    keys: dict[str, None] = {}
    for number, path in enumerate(map(Path, names)):
        key = str(path.with_name(path.stem.replace(".", "_")))
        while key in keys:
            key = f"{key}_{number}"
        keys[key] = None
    return list(keys)


def _add(tar: tarfile.TarFile, name: str, content: bytes | bytearray) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
