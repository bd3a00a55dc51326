"""Save a checkpoint: only finite state, whole or not at all, with checksums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pirl_plugin.files import atomic_write

if TYPE_CHECKING:
    from pathlib import Path

# Z is NaN until the first batch, and always with estimators that have none.
_MAY_BE_NAN = ("norm_constant",)
_BLOCK = 1 << 24  # elements looked at together: 64 MB of float32
_SHOWN = 3


class NonFiniteStateError(FloatingPointError):
    """State with NaN or infinities was about to be saved."""

    stops_training = True  # its text is all that the user needs


def write_checkpoint(content: object, path: Path) -> None:
    """Write what ``torch.save`` writes, in one step; a CRC-32 of each tensor is part of it.

    Args:
        content: what to save.
        path: the file; what is there is replaced at the end.

    Raises:
        DiskFullError: it does not fit: which disk, how much is needed. What was there is intact.
    """
    with atomic_write(path, needed=_size(content)) as file:
        torch.save(content, file)


def check_finite(state: object, what: str) -> None:
    """Refuse to save state from which no run can go on.

    Args:
        state: nested dictionaries, lists and tensors.
        what: what the error calls it.

    Raises:
        NonFiniteStateError: a tensor holds NaN or infinities; names the first of them.
    """
    bad = [
        name
        for name, tensor in tensors_of(state)
        if not name.endswith(_MAY_BE_NAN) and not _is_finite(tensor)
    ]
    if bad:
        shown = ", ".join(bad[:_SHOWN]) + (", …" if len(bad) > _SHOWN else "")
        raise NonFiniteStateError(
            f"{what} was not saved: expected finite numbers, found NaN or infinities in {len(bad)} "
            f"tensors ({shown}); the checkpoint before it is intact: lower the learning rate, and "
            f"give the same command again to go on from there"
        )


def tensors_of(state: object, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors in nested dictionaries, lists and tuples, with dotted names."""
    if isinstance(state, Tensor):
        yield name, state
        return
    if isinstance(state, Mapping):
        items = ((str(key), value) for key, value in state.items())
    elif isinstance(state, (list, tuple)):
        items = ((str(i), value) for i, value in enumerate(state))
    else:
        return
    for key, value in items:
        yield from tensors_of(value, f"{name}.{key}" if name else key)


def _is_finite(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.is_meta or tensor.numel() == 0:
        return True
    # The extremes of a block are finite exactly if it is; no second tensor of its size is made.
    blocks = tensor.detach().reshape(-1).split(_BLOCK)
    return all(bool(torch.isfinite(torch.stack(torch.aminmax(b))).all()) for b in blocks)


def _size(content: object) -> int:
    """Bytes of the tensors' storages, each once, and what a record of the file adds."""
    storages: dict[int, int] = {}
    for _, tensor in tensors_of(content):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values()) + 512 * (len(storages) + 8)
