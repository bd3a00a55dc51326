"""What the processes of ``pirl-plugin prepare`` do: a block of images, or a tar of them."""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from pirl_plugin.data.resized import Copy, is_prepared, resized_copy, write_new


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
        problems: a sentence for each image that has no copy.
    """

    written: int = 0
    present: int = 0
    problems: list[str] = field(default_factory=list)


def copy_block(settings: Settings, names: list[str]) -> Result:
    """Make the copies of a block of images, those that are missing.

    Args:
        settings: what to make.
        names: of the images, relative to the source.
    """
    result = Result()
    for name in names:
        target = settings.out / name
        try:
            present = _present(settings, name)
            if present is None:
                copy = resized_copy(str(settings.source / name), settings.size, settings.quality)
                target = settings.out / f"{name}{copy.suffix}"
                write_new(target, copy.content)
                result.written += 1
            elif is_prepared(present, settings.size):
                result.present += 1
            else:
                result.problems.append(f"{present} is in the way, no copy of this run; remove it")
        except FileExistsError:
            result.problems.append(f"{target} is in the way; remove it")
        except OSError as error:
            if error.errno is not None and not _of_source(error, settings):
                raise  # a full disk, say: go no further
            result.problems.append(f"{settings.source / name}: {error}")
        except (ValueError, MemoryError) as error:
            result.problems.append(f"{settings.source / name}: {error or 'too little memory'}")
    return result


def _of_source(error: OSError, settings: Settings) -> bool:
    """Whether a file of the source could not be read, rather than a copy not be written."""
    return str(error.filename or "").startswith(f"{settings.source}{os.sep}")


def _present(settings: Settings, name: str) -> Path | None:
    """The file that is where a copy of ``name`` would be, or None; an empty one is removed."""
    for target in (settings.out / name, settings.out / f"{name}.jpg"):
        if target.is_file() and target.stat().st_size == 0:  # of a machine that lost power
            target.unlink()
        if os.path.lexists(target):
            return target
    return None


def write_shard(settings: Settings, tar_name: str, members: list[tuple[str, int]]) -> Result:
    """Write one tar of copies, unless it is there.

    Args:
        settings: what to make.
        tar_name: its name in the folder.
        members: name, relative to the source, and class of each image.
    """
    target = settings.out / tar_name
    if target.exists():
        return Result(present=len(members))
    result, keys = Result(), set()
    temporary = target.with_name(f".{tar_name}.tmp")
    with tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as tar:
        for number, (name, label) in enumerate(members):
            try:
                copy = resized_copy(str(settings.source / name), settings.size, settings.quality)
            except (OSError, ValueError, MemoryError) as error:
                result.problems.append(f"{settings.source / name}: {error or 'too little memory'}")
                continue
            key, suffix = _member(name, copy)
            key = f"{key}_{number}" if key in keys else key
            keys.add(key)
            _add(tar, f"{key}{suffix}", copy.content)
            _add(tar, f"{key}.cls", str(label).encode())
            result.written += 1
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    os.rename(temporary, target)
    return result


def _member(name: str, copy: Copy) -> tuple[str, str]:
    """Key and suffix of a member; WebDataset's keys have no dot in the file's name."""
    path = Path(name)
    suffix = copy.suffix or path.suffix.lower()
    return str(path.with_name(path.stem.replace(".", "_"))), suffix


def _add(tar: tarfile.TarFile, name: str, content: bytes | bytearray) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))
