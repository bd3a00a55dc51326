"""The adapter of the collate function to VISSL's samples and batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pirl_plugin.images.image_dataset import collate_views


def pirl_collator(batch: Sequence[dict[str, Any]]) -> dict[str, list[torch.Tensor]]:
    """Collate the samples of the PIRL transforms.

    Args:
        batch: at least one sample, each with ``data`` (a dict of uint8 views and, of a pretext
            task, its ``label``, int64 ()), ``data_idx`` and ``data_valid`` (lists whose first
            entry counts; valid is 1).

    Returns:
        What ``collate_views`` returns, each tensor in a list of one, as VISSL's collators return
        them; ``label`` is the image's row unless a pretext task has its own.

    Raises:
        ValueError: ``data`` is not a dict of views.
    """
    views = batch[0]["data"]
    if not isinstance(views, dict):
        raise ValueError(
            f"config.DATA.TRAIN.COLLATE_FUNCTION = pirl_collator got data of type "
            f"{type(views).__name__}: expected the dict of views of one of PIRL's transforms; put "
            f"one in config.DATA.TRAIN.TRANSFORMS, or choose another collate function"
        )
    samples = [
        {
            "label": int(sample["data_idx"][0]),
            **sample["data"],
            "data_valid": int(sample["data_valid"][0]) == 1,
        }
        for sample in batch
    ]
    return {name: [values] for name, values in collate_views(samples).items()}
