"""The adapter of the collate function to VISSL's samples and batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pirl_plugin.images.collator import collate_views
from pirl_plugin.images.names import JIGSAW, ROTATION, ROTATION_JIGSAW


def pirl_collator(batch: Sequence[dict[str, Any]]) -> dict[str, list[torch.Tensor]]:
    """Collate the samples of the PIRL transforms.

    Args:
        batch: at least one sample, each with ``data`` (a dict of uint8 views and, of a pretext
            task, its ``label``, int64 ()), ``data_idx`` and ``data_valid`` (lists whose first
            entry counts; valid is 1).

    Returns:
        What :func:`pirl_plugin.images.collator.collate_views` returns, each tensor in a list of
        one, as VISSL's collators return them.

    Raises:
        TypeError: if ``data`` is not a dict of views.
    """
    views = batch[0]["data"]
    if not isinstance(views, dict):
        raise TypeError(
            f"config.DATA.TRAIN.COLLATE_FUNCTION = pirl_collator got data of type "
            f"{type(views).__name__}: expected the dict of views that {JIGSAW}, {ROTATION} or "
            f"{ROTATION_JIGSAW} makes; put one in config.DATA.TRAIN.TRANSFORMS, or choose another "
            f"collate function"
        )
    samples = [
        {
            "label": sample["data_idx"][0],
            **sample["data"],
            "data_valid": int(sample["data_valid"][0]) == 1,
        }
        for sample in batch
    ]
    return {name: [values] for name, values in collate_views(samples).items()}
