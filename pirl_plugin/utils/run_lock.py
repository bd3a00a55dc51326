"""One run at a time in a folder: a lock file with a heartbeat, for local and network file systems.

The file names the run's holder: host, process and start time. It is created whole by a hard link,
which is atomic on network file systems too, and its modification time is renewed every
``beat_s`` seconds. A holder on this machine is looked up by its process; one on another machine is
taken for dead once its heartbeat has stopped for ``stale_s`` seconds, by the file system's clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pirl_plugin.utils.lock_holder import Holder, parse_holder, this_process
from pirl_plugin.utils.processes import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable

LOCK_NAME = "run.lock"
BEAT_S = 10.0
STALE_S = 90.0


class FolderInUseError(RuntimeError):
    """Another run holds the folder; ``holder`` says which."""

    def __init__(self, folder: Path, holder: Holder | None) -> None:
        super().__init__(f"{folder} is held by {holder or 'a run whose lock file is unreadable'}")
        self.holder = holder


class RunLock:
    """The claim of a run to a folder, as a context manager.

    Args:
        folder: an existing folder.
        run: identity of the run; None for a run that shares the folder with nobody.
        node: 0 for the node that holds the lock; the others only see that no other run does.
        attempt: how often the run was requeued. A higher one takes the claim of a lower one over.
        on_lost: called, from a thread, when another run has taken the folder over nevertheless.
        beat_s: seconds between two heartbeats.
        stale_s: seconds without a heartbeat after which a holder elsewhere is taken for dead.

    Raises:
        FolderInUseError: on entering, another run holds the folder and is alive.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder, RunLock(Path(folder)) as lock:
        ...     (Path(folder) / LOCK_NAME).exists()
        True
    """

    def __init__(
        self,
        folder: Path,
        run: str | None = None,
        node: int = 0,
        attempt: int = 0,
        on_lost: Callable[[], None] = lambda: None,
        beat_s: float = BEAT_S,
        stale_s: float = STALE_S,
    ) -> None:
        self.path = Path(folder) / LOCK_NAME
        self.node, self.beat_s, self.stale_s = node, beat_s, stale_s
        self._on_lost = on_lost
        self._ended = threading.Event()
        self.holder = this_process(run, attempt)

    def __enter__(self) -> RunLock:
        while not (self.node == 0 and self._create()):
            holder, seen = self._read()
            if holder is not None and self._is_ours(holder):
                if self.node > 0:
                    return self
                if holder.attempt < self.holder.attempt:  # the scheduler ended that one
                    self._remove(holder)
                    continue
            if seen is None:  # gone in the meantime, or never there
                if self.node > 0:
                    return self
                continue
            if self._holder_lives(holder, seen):
                raise FolderInUseError(self.path.parent, holder)
            if self.node > 0:  # node 0 replaces it
                return self
            self._remove(holder)
        threading.Thread(target=self._beat, name="run lock", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        if self.node == 0:
            self._remove(self.holder)

    def _is_ours(self, holder: Holder) -> bool:
        return holder.run == self.holder.run

    def _create(self) -> bool:
        """Create the file with its content at once; False where there is one."""
        content = json.dumps(asdict(self.holder), indent=1) + "\n"
        descriptor, name = tempfile.mkstemp(prefix=f".{LOCK_NAME}.", dir=self.path.parent)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(content)
            try:
                os.link(name, self.path)
            except FileExistsError:
                # Of a request that a network file system has sent twice, the second finds our own.
                return os.stat(name).st_nlink == 2
            except OSError:  # a file system without hard links
                return self._create_exclusively(content)
            return True
        finally:
            os.unlink(name)

    def _create_exclusively(self, content: str) -> bool:
        try:
            with self.path.open("x") as file:
                file.write(content)
        except FileExistsError:
            return False
        return True

    def _read(self) -> tuple[Holder | None, float | None]:
        """The holder and the time of its last heartbeat; None for what is not there."""
        try:
            # Opening it, a network file system looks again.
            with self.path.open(errors="replace") as file:
                return parse_holder(file.read()), os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return None, None

    def _holder_lives(self, holder: Holder | None, seen: float) -> bool:
        """Whether the holder is alive; for one elsewhere this may wait ``stale_s`` seconds."""
        if holder is not None and holder.machine == self.holder.machine:
            return is_alive(holder.pid, holder.birth)
        end = time.monotonic() + self.stale_s - self._age(seen)
        while time.monotonic() < end:
            time.sleep(min(1.0, self.beat_s / 4))
            found, now = self._read()
            if found != holder or now is None:
                return False  # released: look again
            if now != seen:
                return True
        return False

    def _age(self, seen: float) -> float:
        """Seconds since ``seen``, by the clock that stamped it: the file system's."""
        with tempfile.NamedTemporaryFile(prefix=f".{LOCK_NAME}.", dir=self.path.parent) as probe:
            return max(0.0, os.fstat(probe.fileno()).st_mtime - seen)

    def _remove(self, holder: Holder | None) -> None:
        """Remove the file if it is this holder's; another that came in between is put back."""
        aside = self.path.with_name(f".{LOCK_NAME}.{uuid.uuid4().hex}")
        with contextlib.suppress(FileNotFoundError):
            if self._read()[0] != holder:
                return
            os.rename(self.path, aside)
            if parse_holder(aside.read_text(errors="replace")) != holder:
                with contextlib.suppress(OSError):
                    os.link(aside, self.path)
            aside.unlink()

    def _beat(self) -> None:
        while not self._ended.wait(self.beat_s):
            with contextlib.suppress(OSError):  # the file system may come back
                found, _ = self._read()
                if found is not None and found.token != self.holder.token:
                    self._on_lost()
                    return
                if found is None:  # removed by hand
                    self._create()
                os.utime(self.path)
