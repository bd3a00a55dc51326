"""Write files atomically, and by one process at a time.

Rows *full disk* and *output in use* of "How a command ends" (docs/architecture.md).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from pirl_plugin.system.comparison import differences, format_differences
from pirl_plugin.system.console import warn
from pirl_plugin.system.failures import FailedWrite, Refused
from pirl_plugin.system.watcher import removed_at_end

UNFINISHED = ".unfinished."
"""File name prefix while a file is being written."""
LOCK = ".lock"
"""Name of a folder's lock file."""
RUN_FILE = "run.json"
"""Name of the file that :func:`claim_folder` writes."""


@contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces ``path`` atomically at the end.

    Readers of ``path`` see either the complete old file or the complete new one, even after a power
    failure. Only one process at a time may write a path.

    Args:
        path: the file to write; its folder is created. A file beside it is written first.

    Raises:
        FailedWrite: the file cannot be written; the old file is intact.
    """
    path = Path(path)
    unfinished = path.with_name(f"{UNFINISHED}{path.name}")
    with naming_failures(path), removed_at_end(unfinished):
        path.parent.mkdir(parents=True, exist_ok=True)
        with create(unfinished) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        flush_names(path.parent)


def create(path: Path) -> BinaryIO:
    """Open a new file for writing. An existing one, or what a link names, is never written to."""
    remove(path)
    return path.open("xb")


def open_itself(path: str, flags: int) -> int:
    """Open a file that another process may have begun, but no link, as an ``opener``.

    Raises:
        OSError: the file cannot be opened, or is a link.
    """
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def flush_names(folder: Path) -> None:
    """Flush a folder's new names to the disk, if the file system supports it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def naming_failures(path: Path) -> Iterator[None]:
    """Name the file or folder that a block writes to, if the system refuses a write.

    Raises:
        FailedWrite: with ``path`` and the system's reason.
    """
    try:
        yield
    except FailedWrite:
        raise
    except Exception as error:
        # torch raises a different error on top of the system's.
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, OSError) and cause.errno:
                raise FailedWrite(cause.errno, cause.strerror, str(path)) from error
            cause = cause.__cause__ or cause.__context__
        raise


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    with atomic_write(path) as file:
        file.write(text.encode())


def write_json(path: Path, content: object) -> None:
    """Write human-readable JSON atomically."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Read a log with one JSON object per line; skip incomplete lines and a missing file."""
    if not path.is_file():
        return []
    entries = []
    for line in path.read_text(errors="replace").splitlines():
        with suppress(ValueError):
            entries.append(json.loads(line))
    return [entry for entry in entries if isinstance(entry, dict)]


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        Refused: the file does not contain one.
    """
    content = None
    with suppress(ValueError):
        content = json.loads(path.read_bytes())
    if not isinstance(content, dict):
        raise Refused(f"{path} is damaged. Delete it, and run the same command again.")
    return content


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 as hexadecimal digits.

    This takes about a second per GB, so call it once per file, on one rank.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(texts: Iterable[str], root: str = "") -> str:
    """Return the SHA-256 of a list of texts, or of paths relative to ``root``, in order.

    Example:
        >>> one, two = ["/a/1.jpg", "/a/2.jpg"], ["/b/1.jpg", "/b/2.jpg"]
        >>> digest_of(one, "/a") == digest_of(two, "/b") != digest_of(one[::-1], "/a")
        True
    """
    prefix = os.path.join(root, "")
    digest = hashlib.sha256()
    for text in texts:
        digest.update(os.fsencode(text.removeprefix(prefix)) + b"\0")
    return digest.hexdigest()


def link_relatively(target: Path, link: Path) -> None:
    """Create or replace ``link``, a symbolic link that stays valid if its folder is moved."""
    # In one step, so that the link always points to a file.
    unfinished = link.with_name(f"{UNFINISHED}{link.name}")
    unfinished.unlink(missing_ok=True)
    unfinished.symlink_to(os.path.relpath(target.absolute(), link.parent.absolute()))
    unfinished.replace(link)


def remove_unfinished(folder: Path) -> None:
    """Remove killed processes' unfinished files; only this process may write to the folder."""
    for path in folder.rglob(f"{UNFINISHED}*"):
        with suppress(OSError):
            remove(path)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with its content, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def claim_folder(folder: Path, run: Mapping[str, object]) -> None:
    """Record in a folder which run it belongs to, and refuse it to other runs.

    Args:
        folder: the output folder, which is created.
        run: values that describe the run, and that JSON can represent.

    Raises:
        Refused: the folder belongs to another run, or its record is damaged.
    """
    file = folder / RUN_FILE
    new = json.loads(json.dumps(run))  # as it will be read
    recorded = read_json(file) if file.is_file() else new
    differs = differences(new, recorded)
    if differs:
        values = format_differences(differs, "{key} {expected} (now {value})", width=250)
        raise Refused(
            f"{folder} belongs to the run with {values}. To start another run, choose another "
            f"folder."
        )
    write_json(file, new)


@contextmanager
def locked(folder: Path, key: str) -> Iterator[IO[str]]:
    """Lock a folder against other processes that write to it.

    The file is never removed, because two processes could then hold locks on files with the same
    name.

    Args:
        folder: the folder, which is created.
        key: the option or key that names it, for the message.

    Yields:
        The open lock file. The lock ends when the last process with this descriptor closes it.

    Raises:
        Refused: another process holds the lock.
    """
    with _lock(folder / LOCK, folder, key) as lock:
        yield lock


@contextmanager
def locked_file(path: Path, key: str) -> Iterator[None]:
    """Lock a file against other processes that write it, using a hidden file beside it.

    Args:
        path: the file; its folder is created.
        key: the option that names it, for the message.

    Raises:
        Refused: another process holds the lock.
    """
    lock_path = path.with_name(f".{path.name}{LOCK}")
    with _lock(lock_path, path, key), removed_at_end(lock_path):  # while no other process has it
        yield


@contextmanager
def _lock(lock_path: Path, path: Path, key: str) -> Iterator[IO[str]]:
    """Open a file and lock it in a block, or refuse the path that it stands for."""
    with naming_failures(lock_path.parent):
        lock_path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(lock_path, "a+", opener=open_itself)
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have removed this file after it was opened here.
            if not os.path.samefile(lock.fileno(), lock_path):
                raise BlockingIOError
        except (BlockingIOError, FileNotFoundError):
            raise Refused(
                f"{key} = {path}: another process is writing to it. Wait for it, stop it, or "
                f"choose another path."
            ) from None
        except OSError as error:
            warn(
                f"The file system cannot lock {lock_path} ({error.strerror}). Do not start a "
                f"second process that writes there."
            )
        yield lock
