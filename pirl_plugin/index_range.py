"""The range of the indices that a GPU was given, which the host reads without waiting for it."""

from __future__ import annotations

import torch
from torch import Tensor


class IndexRange:
    """The smallest and the largest index so far.

    The two numbers stay on the device. Each :meth:`add` also starts their copy to the host. The
    host reads the copy without waiting, so it sees an index a little later: after anything that
    waits for the GPU, and at the latest some steps after it was added.

    Args:
        device: device of the indices.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_device = torch.zeros(2, dtype=torch.int64, device=device)
        # A copy to ordinary memory would wait for the GPU.
        self._on_host = torch.zeros(2, dtype=torch.int64, pin_memory=device.type == "cuda")

    def add(self, index: Tensor) -> None:
        """Add indices, int64 of any shape."""
        smallest, largest = self._on_device
        values = torch.cat([self._on_device, index.flatten()])
        torch.aminmax(values, out=(smallest, largest))
        self._on_host.copy_(self._on_device, non_blocking=True)

    def read(self, wait: bool = False) -> tuple[int, int]:
        """Return the smallest and the largest index that have reached the host.

        Args:
            wait: whether to wait for the device, so that all indices count.
        """
        smallest, largest = (self._on_device if wait else self._on_host).tolist()
        return smallest, largest
