"""End a run whose loader gives no batch for too long.

A read from a network disk can block for ever. torch's ``DataLoader`` has a time-out only if it has
workers, and the thread that waits may not run Python's code any more. So a second thread watches,
and ends the process.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from classy_vision.dataset.dataloader_wrapper import DataloaderWrapper

from pirl_plugin.system.failures import PREFIX, record
from pirl_plugin.vissl.resume.signals import end_process


class LimitedLoader(DataloaderWrapper):
    """A loader of the host, whose iterators limit the wait for each batch.

    Other attributes are those of the host's loader.
    """

    def __init__(self, loader: Any, limit: WaitLimit) -> None:
        super().__init__(loader)
        self.__dict__["_limit"] = limit  # the base class would set it in the loader

    def __iter__(self) -> LimitedBatches:
        with self._limit.waiting():  # the host's asynchronous copy to a GPU reads a batch here
            batches = iter(self.dataloader)
        return LimitedBatches(batches, self._limit)

    def __next__(self) -> Any:
        raise TypeError("call next() on iter(loader)")

    def __len__(self) -> int:
        return len(self.dataloader)


class LimitedBatches:
    """An iterator over the batches of a loader, with a limit for each wait."""

    def __init__(self, batches: Any, limit: WaitLimit) -> None:
        self._batches = batches
        self._limit = limit

    def __iter__(self) -> LimitedBatches:
        return self

    def __next__(self) -> Any:
        with self._limit.waiting():
            return next(self._batches)

    def __len__(self) -> int:  # the host's number of steps in a phase
        return len(self._batches)


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

    def _watch(self) -> None:
        timeout = 60 * self._timeout_minutes
        pause = min(10.0, timeout / 10)
        wait = 0
        waited = 0.0
        while waited < timeout:
            time.sleep(pause)
            if self._is_waiting and self._wait == wait:
                waited += pause
            else:
                wait = self._wait
                waited = 0.0
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
        end_process(record(text, stack, self._folder) or text, 1)
