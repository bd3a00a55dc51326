"""Check image numbers, the index into the memory bank."""

from __future__ import annotations

import torch
from torch import Tensor

from pirl_plugin.system.failures import Refused, type_and_shape


def as_index(index: Tensor) -> Tensor:
    """Return an index flattened to ``(B,)``.

    Raises:
        ValueError: ``index`` is not an int64 tensor.
    """
    if not isinstance(index, Tensor) or index.dtype != torch.int64:
        raise Refused(
            f"index is {type_and_shape(index)}: expected an int64 tensor, each image's number in "
            f"the data set. Convert it with torch.as_tensor(index).long()."
        )
    return index.reshape(-1)


def check_range(index: Tensor, num_rows: int, lowest: int = -1) -> None:
    """Reject an index outside the data set; this synchronizes with a GPU.

    Args:
        index: int64 of any shape.
        num_rows: |D|.
        lowest: smallest allowed index; −1 skips an image.

    Raises:
        ValueError: an index is outside.
    """
    if index.numel() == 0:
        return
    smallest, largest = torch.stack(index.aminmax()).tolist()
    outside = smallest if smallest < lowest else largest
    if not lowest <= outside < num_rows:
        raise Refused(
            f"index {outside} is outside the memory bank of {num_rows} images. Pass each image's "
            f"number in the data set, and the data set's size as num_train_samples."
        )
