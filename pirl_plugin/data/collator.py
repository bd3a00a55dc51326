"""Samples → a batch of views, with the labels of unreadable images masked."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import get_worker_info

IGNORED_LABEL = -1
_JOINED = frozenset({"patches"})


def pirl_collator(batch: Sequence[dict[str, Any]]) -> dict[str, list[torch.Tensor]]:
    """Collate the samples of the PIRL transforms.

    Args:
        batch: at least one sample, each with ``data`` (a dict of uint8 views: ``images``
            (3, S, S), ``patches`` (n, 3, P, P) or ``rotated`` (3, S, S), and of a pretext task
            its ``label``, int64 ()), ``data_idx`` and ``data_valid`` (lists whose first entry
            counts; valid is 1).

    Returns:
        One-element lists, as VISSL's collators return them: ``images`` uint8 (B, 3, S, S),
        ``patches`` uint8 (n·B, 3, P, P) with the patches of an image together, or ``rotated``
        uint8 (B, 3, S, S); ``label`` int64 (B,), the pretext task's or else the row in the data
        set, and −1 where the image could not be read, so that neither loss nor memory bank sees
        it; ``data_valid`` bool (B,).

    Raises:
        TypeError: if ``data`` is not a dict of views.
    """
    views = [sample["data"] for sample in batch]
    if not isinstance(views[0], dict):
        raise TypeError(
            f"pirl_collator got data of type {type(views[0]).__name__}; expected the dict of views "
            "that PIRLJigsaw, PIRLRotation or PIRLRotationJigsaw makes: put one in "
            "config.DATA.TRAIN.TRANSFORMS, or choose another config.DATA.TRAIN.COLLATE_FUNCTION"
        )
    valid = torch.tensor([int(sample["data_valid"][0]) == 1 for sample in batch])
    labels = torch.tensor([int(sample["data_idx"][0]) for sample in batch])
    collated: dict[str, list[torch.Tensor]] = {}
    for name in views[0]:
        stacked = _stack([view[name] for view in views])
        if name == "label":
            labels = stacked
            continue
        collated[name] = [stacked.flatten(0, 1) if name in _JOINED else stacked]
    collated["label"] = [labels.masked_fill_(~valid, IGNORED_LABEL)]
    collated["data_valid"] = [valid]
    return collated


def _stack(views: list[torch.Tensor]) -> torch.Tensor:
    """Stack; in a worker straight into shared memory, which saves a copy on the way out."""
    if get_worker_info() is None:
        return torch.stack(views)
    shape = (len(views), *views[0].shape)
    nbytes = len(views) * views[0].nbytes
    storage = views[0]._typed_storage()._new_shared(nbytes, device="cpu")
    return torch.stack(views, out=views[0].new(storage).resize_(shape))
