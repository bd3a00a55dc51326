"""Samples → a batch of views, with the labels of unreadable images masked."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import get_worker_info

from pirl_plugin.views.base import IGNORED_LABEL

_JOINED = frozenset({"patches"})
_NOT_VIEWS = frozenset({"label", "data_valid"})


def collate_views(samples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    """Collate the samples of an ``ImageDataset``: the ``collate_fn`` of a ``DataLoader``.

    Args:
        samples: at least one, each with its views (uint8: ``images`` (3, S, S), ``patches``
            (n, 3, P, P) or ``rotated`` (3, S, S)), its ``label`` and ``data_valid``, whether the
            image could be read.

    Returns:
        ``images`` uint8 (B, 3, S, S), ``patches`` uint8 (n·B, 3, P, P) with the patches of an
        image together, or ``rotated`` uint8 (B, 3, S, S); ``label`` int64 (B,), the row in the
        data set or a pretext task's label, and −1 where the image could not be read, so that
        neither loss nor memory bank sees it; ``data_valid`` bool (B,).

    Raises:
        ValueError: there are no samples.

    Example:
        >>> image = torch.zeros(3, 8, 8, dtype=torch.uint8)
        >>> rows = [{"images": image, "label": r, "data_valid": r != 1} for r in range(3)]
        >>> batch = collate_views(rows)
        >>> batch["images"].shape, batch["label"].tolist()
        (torch.Size([3, 3, 8, 8]), [0, -1, 2])
    """
    if not samples:
        raise ValueError("there are no samples: expected at least one to make a batch of")
    valid = torch.tensor([bool(sample["data_valid"]) for sample in samples])
    labels = torch.tensor([int(sample["label"]) for sample in samples])
    batch = {}
    for name in samples[0]:
        if name not in _NOT_VIEWS:
            views = _stack([sample[name] for sample in samples])
            batch[name] = views.flatten(0, 1) if name in _JOINED else views
    batch["label"] = labels.masked_fill_(~valid, IGNORED_LABEL)
    batch["data_valid"] = valid
    return batch


def _stack(views: list[torch.Tensor]) -> torch.Tensor:
    """Stack; in a worker straight into shared memory, which saves a copy on the way out."""
    if get_worker_info() is None:
        return torch.stack(views)
    shape = (len(views), *views[0].shape)
    nbytes = len(views) * views[0].nbytes
    storage = views[0]._typed_storage()._new_shared(nbytes, device="cpu")
    return torch.stack(views, out=views[0].new(storage).resize_(shape))
