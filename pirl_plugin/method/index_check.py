"""Check indices against the size of the data set, without waiting for a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pirl_plugin.system.failures import Refused, type_and_shape


@dataclass(eq=False)
class IndexCheck:
    """Rejects an index outside the data set: on a CPU at once, on a GPU a little later.

    The CPU runs ahead of a GPU, so it cannot inspect an index there without waiting. Instead, the
    smallest and the largest index so far stay on the GPU. Each :meth:`note` also starts copying
    them to the CPU, and :meth:`refuse_noted` reads the copy without waiting. So a bad index raises
    an error after the next synchronization with the GPU, or a few steps later.

    Attributes:
        num_rows: |D|.
    """

    num_rows: int
    # The smallest and the largest noted index, int64 (2,): on the GPU, and a copy on the CPU.
    _noted: tuple[Tensor, Tensor] | None = None

    def check(self, index: Tensor, lowest: int = -1, wait: bool = False) -> None:
        """Reject an index outside the data set; on a GPU, note it and check those noted before.

        Args:
            index: int64 of any shape.
            lowest: smallest allowed index; −1 skips an image.
            wait: whether to synchronize with a GPU, which checks the index at once.

        Raises:
            ValueError: an index, or on a GPU an index from an earlier call, is outside.
        """
        if index.device.type != "cpu" and not wait:
            self.refuse_noted()
            self.note(index)
        elif index.numel():
            smallest, largest = torch.stack(index.aminmax()).tolist()
            self._check_range(smallest, largest, lowest)

    def note(self, index: Tensor) -> None:
        """Note indices, int64 of any shape, for :meth:`refuse_noted`."""
        if self._noted is None:
            limits = torch.zeros(2, dtype=torch.int64, device=index.device)
            # Copying to unpinned memory would wait for the GPU.
            limits_on_cpu = torch.zeros(
                2, dtype=torch.int64, device="cpu", pin_memory=index.is_cuda
            )
            self._noted = (limits, limits_on_cpu)
        limits, limits_on_cpu = self._noted
        smallest, largest = limits
        torch.aminmax(torch.cat([limits, index.flatten()]), out=(smallest, largest))
        limits_on_cpu.copy_(limits, non_blocking=True)

    def refuse_noted(self, wait: bool = False) -> None:
        """Reject a noted index outside the data set, once.

        Args:
            wait: whether to synchronize with the GPU, so that all noted indices are checked.

        Raises:
            ValueError: a noted index that the CPU has received is outside.
        """
        if self._noted is None:
            return
        limits, limits_on_cpu = self._noted
        smallest, largest = (limits if wait else limits_on_cpu).tolist()
        if smallest < -1 or largest >= self.num_rows:
            self._noted = None  # not zeros: a copy to these tensors may be under way
        self._check_range(smallest, largest, lowest=-1)

    def _check_range(self, smallest: int, largest: int, lowest: int) -> None:
        outside = smallest if smallest < lowest else largest
        if not lowest <= outside < self.num_rows:
            raise Refused(
                f"index {outside} is outside the memory bank of {self.num_rows} images: pass each "
                f"image's number in the data set, and the size of the data set as num_train_samples"
            )


def as_index(index: Tensor) -> Tensor:
    """Return an index flattened to ``(B,)``.

    Raises:
        ValueError: ``index`` is not an int64 tensor.
    """
    if not isinstance(index, Tensor) or index.dtype != torch.int64:
        raise Refused(
            f"index is {type_and_shape(index)}: expected an int64 tensor, each image's number in "
            f"the data set; convert it with torch.as_tensor(index).long()"
        )
    return index.reshape(-1)
