"""End a process that hangs: on a second signal, or if the loader gives no batch for too long.

A read from a network disk can block for ever, and a thread that waits in torch's C++ code does not
run Python's signal handlers. So a second thread watches the main thread, and ends the process.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.failures import PREFIX, record
from pirl_plugin.settings import is_ours

if TYPE_CHECKING:
    from vissl.config import AttrDict

_ENDING = (signal.SIGINT, signal.SIGTERM)
"""Second signals that end a process. SLURM's SIGUSR1 only asks again."""
_SAME_SIGNAL_S = 2.0
"""One Ctrl-C reaches the launcher and its ranks, and the launcher sends it to its ranks again."""
GRACE_S = 5.0
"""Time for the other ranks to end by themselves, seconds."""


@contextmanager
def second_signal_ends_process() -> Iterator[None]:
    """After the first signal, a run saves and ends. End the process at once on a second signal.

    The second is SIGINT or SIGTERM, at least two seconds after the first, which may be any signal
    that this process has a handler for. Only the main thread can do this; in other threads, nothing
    happens.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Python's own C code writes the number of each signal to this pipe, whatever the main thread
    # does.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    earlier = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_await_second_signal, args=[reader], daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(earlier)
        os.close(writer)  # ends the thread


def _await_second_signal(reader: int) -> None:
    first: float | None = None
    while number := os.read(reader, 1):
        now = time.monotonic()
        if first is None:
            first = now
        elif number[0] in _ENDING and now - first >= _SAME_SIGNAL_S:
            _end_on_signal(number[0])
    os.close(reader)


def _end_on_signal(number: int) -> None:
    if any(not child.daemon for child in multiprocessing.active_children()):
        time.sleep(GRACE_S)  # the launcher: its ranks got the signal too
    name = signal.Signals(number).name
    _end(
        f"{PREFIX}{name} again: the run has ended without saving; the same command resumes from "
        f"the last checkpoint",
        128 + number,
    )


def _end(text: str, status: int) -> None:
    """End this process and its children at once."""
    if multiprocessing.parent_process() is None:  # a spawned rank's launcher says it
        # The main thread may hold the lock of sys.stderr.
        os.write(2, f"{text}\n".encode(sys.stderr.encoding or "utf-8", "backslashreplace"))
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(status)


def watch_loaders(module: Any) -> None:
    """Wrap the host's ``build_dataloader``: in our runs, a wait for a batch has a time-out."""
    original = module.build_dataloader

    @functools.wraps(original)
    def build_dataloader(dataset: Any, *args: Any, **kwargs: Any) -> Any:
        loader = original(dataset, *args, **kwargs)
        return _watched(loader, dataset.cfg) if is_ours(dataset.cfg) else loader

    module.build_dataloader = build_dataloader


def _watched(loader: Any, config: AttrDict) -> Any:
    """Return a loader whose iterators end the process if a batch does not come in time."""
    from classy_vision.dataset.dataloader_wrapper import DataloaderWrapper
    from vissl.utils.checkpoint import get_checkpoint_folder

    from pirl_plugin.vissl.sections import RunSettings, read_section

    minutes = read_section(RunSettings, config, "HOOKS.PIRL_RUN").timeout_minutes
    folder = Path(get_checkpoint_folder(config))

    class WatchedLoader(DataloaderWrapper):
        """A loader of the host; its attributes are those of the wrapped loader."""

        def __iter__(self) -> Iterator[Any]:
            return WatchedBatches(self.dataloader, WaitLimit(minutes, folder))

        def __next__(self) -> Any:
            raise TypeError("call next() on iter(loader)")

        def __len__(self) -> int:
            return len(self.dataloader)

    return WatchedLoader(loader)


class WatchedBatches:
    """An iterator over the batches of a loader, with a limit for each wait.

    Args:
        loader: the loader.
        limit: ends the process.
    """

    def __init__(self, loader: Any, limit: WaitLimit) -> None:
        self._limit = limit
        with limit.waiting():
            self._batches = iter(loader)

    def __iter__(self) -> WatchedBatches:
        return self

    def __len__(self) -> int:
        return len(self._batches)

    def __next__(self) -> Any:
        """Return the next batch."""
        with self._limit.waiting():
            return next(self._batches)

    def __del__(self) -> None:
        self._limit.stop()


class WaitLimit:
    """A thread that ends the process if one wait of the main thread takes too long.

    The thread counts its own pauses. So the time in which the whole process was suspended, as by
    Ctrl-Z, does not count.

    Args:
        timeout_minutes: longest wait.
        folder: folder of the run, for ``failure.txt``.
    """

    def __init__(self, timeout_minutes: float, folder: Path) -> None:
        self._timeout_minutes = timeout_minutes
        self._folder = folder
        self._is_waiting = False
        self._wait = 0  # number of the current wait, or of the last one
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Limit the time of the block."""
        self._wait += 1
        self._is_waiting = True
        try:
            yield
        finally:
            self._is_waiting = False

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()

    def _watch(self) -> None:
        timeout = 60 * self._timeout_minutes
        pause = min(10.0, timeout / 10)
        wait, waited = 0, 0.0
        while not self._stopped.wait(pause):
            if self._is_waiting and self._wait == wait:
                waited += pause
            else:
                wait = self._wait
                waited = 0.0
            if waited >= timeout:
                self._end()

    def _end(self) -> None:
        frame = sys._current_frames()[threading.main_thread().ident or 0]
        stack = "Stack of the main thread:\n" + "".join(traceback.format_stack(frame))
        rank = os.environ.get("RANK", "0")
        text = (
            f"{PREFIX}rank {rank}: the loader gave no batch for {self._timeout_minutes:g} minutes "
            f"(config.HOOKS.PIRL_RUN.timeout_minutes): a read does not return; check the disk or "
            f"mount of the images, and start again"
        )
        path = record(text, stack, self._folder)
        _end(f"{text} (traceback in {path})" if path else text, 1)
