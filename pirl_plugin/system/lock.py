"""A lock of an output: one process at a time writes a folder or a file."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from pirl_plugin.system.failures import Refused

LOCK = ".lock"
"""Name of the lock in a folder."""


@contextmanager
def locked(folder: Path, key: str) -> Iterator[None]:
    """Lock a folder against other processes that write to it.

    The lock belongs to all processes that use ``folder/.lock`` in this context or in
    :func:`sharing_lock`. It ends with the last of them: if the launcher of a run is killed, no
    second run starts while a rank may still write. The file is never removed: otherwise two
    processes could hold locks on files of the same name.

    Args:
        folder: the folder; it is made.
        key: option or key that names it, for the message.

    Raises:
        Refused: another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as lock:
        # Alone at first; then the ranks may share it. The change is not atomic (flock(2)): another
        # launcher may get the lock in between.
        if not (_lock(lock, alone=True) and _lock(lock, alone=False)):
            raise _refusal(folder, key)
        yield


@contextmanager
def sharing_lock(folder: Path, key: str) -> Iterator[None]:
    """Hold the lock of this process's launcher too, which may be killed before this process.

    Raises:
        Refused: the launcher was killed, and another process has the lock.
    """
    with (folder / LOCK).open("a+") as lock:
        if not _lock(lock, alone=False):
            raise _refusal(folder, key)
        yield


@contextmanager
def locked_files(**paths: Path | None) -> Iterator[None]:
    """Lock files against other processes that write them, each with a hidden file beside it.

    Args:
        **paths: name of an option → the file to write; None: no file.

    Raises:
        Refused: another process holds the lock.
    """
    with ExitStack() as stack:
        for option, path in paths.items():
            if path is not None:
                stack.enter_context(_locked_file(path, f"--{option}"))
        yield


@contextmanager
def _locked_file(path: Path, key: str) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    lock_path = path.with_name(f".{path.name}{LOCK}")
    while True:
        with lock_path.open("a+") as lock:
            if not _lock(lock, alone=True):
                raise _refusal(path, key)
            # The process before may have removed this file after it was opened here.
            if not _is_same_file(lock, lock_path):
                continue
            try:
                yield
            finally:
                lock_path.unlink(missing_ok=True)  # while it is locked: no other process has it
            return


def _is_same_file(lock: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _refusal(path: Path, key: str) -> Refused:
    return Refused(
        f"{key} = {path}: expected an output that no other process writes, and another process "
        f"writes it; wait for it, stop it, or give another"
    )


def _lock(lock: IO[str], alone: bool) -> bool:
    """Lock an open file without waiting; return whether no other process prevents it."""
    try:
        fcntl.flock(lock, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        logging.root.warning(
            f"The file system cannot lock {lock.name} ({error.strerror}): start no second process "
            f"that writes there"
        )
    return True
