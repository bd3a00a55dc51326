"""What travels between the rank that has an image and the rank that holds its row of the bank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pirl_plugin.distributed import start_all_to_all, world_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


class Routing:
    """Sends values of this rank's images to the ranks that hold their rows, and back. Collective.

    Messages have the sizes that are needed, which the host must know: on a GPU, it waits for
    all that is queued before.

    Args:
        positions: ``(B,)`` int64, where the rows of this rank's images are in the whole bank.
        owners: ``(B,)`` int64, the rank that holds each; the number of ranks leaves one out.

    Attributes:
        positions: ``(n,)`` int64, those asked of this rank, in the order of the ranks that ask.
    """

    def __init__(self, positions: Tensor, owners: Tensor) -> None:
        ranks, self._size = world_size(), len(positions)
        self._order = owners.argsort(stable=True)
        counts = owners.bincount(minlength=ranks + 1)[:ranks]
        ones = [1] * ranks
        asked = start_all_to_all(counts, ones, ones)()
        self._sent, self._received = torch.stack([counts, asked]).tolist()
        self._order = self._order[: sum(self._sent)]
        self.positions = self.start_to_owners(positions)()

    def start_to_owners(self, values: Tensor) -> Callable[[], Tensor]:
        """Begin to bring ``(B, …)`` values to the owners; returns what finishes: ``(n, …)``."""
        return start_all_to_all(values[self._order], self._sent, self._received)

    def from_owners(self, values: Tensor) -> Tensor:
        """Bring ``(n, …)`` values back to those who asked: ``(B, …)``, 0 for one left out."""
        mine = start_all_to_all(values, self._received, self._sent)()
        return values.new_zeros(self._size, *values.shape[1:]).index_copy_(0, self._order, mine)
