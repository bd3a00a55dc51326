"""Files that are whole or not there: written beside, flushed to the disk, renamed."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import socket
import time
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pirl_plugin.utils.processes import is_alive, machine_id, process_birth

if TYPE_CHECKING:
    from collections.abc import Iterator

UNFINISHED = ".unfinished."  # how the names of files begin that are being written
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_SPARE = 1 << 20  # bytes that logs may take while a file is written
_DAY = 24 * 3600
_numbers = count()


class DiskFullError(OSError):
    """A file does not fit on its disk."""

    stops_training = True  # its text is all that the user needs


@contextmanager
def atomic_write(path: str | Path, needed: int | None = None) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the place of ``path`` in one step, at the end.

    Whoever reads ``path``, at any moment and after a power cut too, sees what was there before or
    all of what is written. Where the writing fails, what was there before remains.

    Args:
        path: the file to write; its folder is made.
        needed: bytes that it will have, where they are known; too little space is then found out
            before anything is written.

    Raises:
        DiskFullError: it does not fit: which disk, how much is needed, what to do.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = unfinished_beside(path)
    try:
        if needed is not None:
            check_free_space(path, needed)
        with unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        flush_folder(path.parent)
    except Exception as error:
        report_full_disk(path, needed, error)
        raise
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def link_relatively(target: Path, link: Path) -> None:
    """Make ``link`` a relative symbolic link to ``target``, in one step.

    It goes on resolving when the folder of both is moved or copied. ``link`` may be there already.
    """
    unfinished = unfinished_beside(link)
    folder = os.path.realpath(link.parent)
    relative = os.path.relpath(os.path.join(os.path.realpath(target.parent), target.name), folder)
    try:
        unfinished.symlink_to(relative)
        unfinished.replace(link)
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def check_free_space(path: Path, needed: int) -> None:
    """Refuse to begin a file that will not fit.

    Raises:
        DiskFullError: there are fewer bytes free than ``needed``, and one MB for logs.
    """
    if shutil.disk_usage(path.parent).free < needed + _SPARE:
        raise DiskFullError(_message(path, needed, "too little space"))


def report_full_disk(path: Path, needed: int | None, error: BaseException) -> None:
    """Raise in one sentence what kept ``path`` from being written, if it is a full disk.

    Raises:
        DiskFullError: it is one.
    """
    seen: BaseException | None = error
    while seen is not None:  # torch raises another error on top of it
        if isinstance(seen, OSError) and seen.errno in _FULL:
            raise DiskFullError(_message(path, needed, os.strerror(seen.errno))) from error
        seen = seen.__cause__ or seen.__context__
    for number in _FULL:  # other ranks' errors come as text
        if os.strerror(number) in str(error):
            raise DiskFullError(_message(path, needed, os.strerror(number))) from error


def flush_folder(folder: Path) -> None:
    """Flush renames in ``folder`` to the disk; on file systems that cannot, do nothing."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def unfinished_beside(path: Path) -> Path:
    """A new name, in the folder of ``path``, of a file that this process is writing.

    What a killed process leaves under it, :func:`remove_unfinished` recognises.
    """
    return path.with_name(f"{UNFINISHED}{_mark(os.getpid())}.{next(_numbers)}")


def remove_unfinished(folder: Path, subfolders: bool = False) -> None:
    """Remove what killed processes left half written: of this host, or older than a day.

    Args:
        folder: to look into; it need not exist.
        subfolders: whether to look into those below it, too.
    """
    found = folder.rglob if subfolders else folder.glob
    for path in found(f"{UNFINISHED}*"):
        try:
            if time.time() - path.lstat().st_mtime > _DAY or _was_left(path.name):
                remove(path)
        except (OSError, ValueError):  # another process removed it, or the name is not ours
            continue


def _was_left(name: str) -> bool:
    """Whether the process that an unfinished name is of, on this host, has ended.

    Raises:
        ValueError: the name has other parts.
    """
    host, pid, birth, _ = name.removeprefix(UNFINISHED).rsplit(".", maxsplit=3)
    if host != socket.gethostname():
        return False
    return not (is_alive(int(pid)) and birth == _birth_mark(int(pid)))


@lru_cache(maxsize=1)
def _mark(own_pid: int) -> str:
    return f"{socket.gethostname()}.{own_pid}.{_birth_mark(own_pid)}"


def _birth_mark(pid: int) -> str:
    """Short for what tells a process from an earlier one of its number, as in a new container."""
    return hashlib.sha256(f"{machine_id()} {process_birth(pid)}".encode()).hexdigest()[:8]


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder; nothing where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def megabytes(size: float) -> str:
    """Bytes as people read them.

    >>> megabytes(850e6)
    '850 MB'
    >>> megabytes(1.3e6)
    '1.3 MB'
    """
    return f"{size / 1e6:.0f} MB" if size >= 1e7 else f"{size / 1e6:.1f} MB"


def _message(path: Path, needed: int | None, why: str) -> str:
    disk = path.parent.resolve()
    while not disk.is_mount() and disk != disk.parent:
        disk = disk.parent
    usage = shutil.disk_usage(path.parent)
    asked = f"it needs {megabytes(needed)}" if needed is not None else "it needs more"
    return (
        f"{path} was not written, what was there before is intact: {why} on the disk {disk} "
        f"({megabytes(usage.free)} of {megabytes(usage.total)} free, {asked}); make room there, or "
        f"raise the quota or file size limit (ulimit -f), and give the same command again"
    )
