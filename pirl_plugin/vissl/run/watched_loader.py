"""A loader of the host with a limit for the wait for each batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from classy_vision.dataset.dataloader_wrapper import DataloaderWrapper

from pirl_plugin.system.loader import WatchedBatches
from pirl_plugin.system.watcher import Wait


class WatchedLoader(DataloaderWrapper):
    """A loader of the host, whose iterators limit the wait for each batch.

    Other attributes are those of the host's loader.
    """

    def __init__(self, loader: Any, wait: Callable[[], Wait]) -> None:
        super().__init__(loader)
        self.__dict__["_wait"] = wait  # the base class would set it in the loader

    def __iter__(self) -> WatchedBatches:
        return WatchedBatches(self.dataloader, self._wait)

    def __next__(self) -> Any:
        raise TypeError("call next() on iter(loader)")

    def __len__(self) -> int:
        return len(self.dataloader)
