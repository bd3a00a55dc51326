"""Unlabeled images, whose label is −1."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from vissl.meters.accuracy_list_meter import AccuracyListMeter


def count_labeled_images(
    meter: AccuracyListMeter,
    model_output: Tensor | list[Tensor],
    target: Tensor,
    *,
    original: Callable[..., Any],
) -> None:
    """Never worked: the label −1, which VISSL's loss ignores, ends the run in VISSL's meter."""
    outputs = model_output if isinstance(model_output, list) else [model_output]
    if target.ndim == 1:  # not labels for mixed images, (B, classes)
        has_class = target >= 0
        if not has_class.any():
            return
        outputs = [output[has_class] for output in outputs]
        target = target[has_class]
    original(meter, outputs, target)
