"""Patches of VISSL's classification: images without a class have the label −1."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from vissl.losses.cross_entropy_multiple_output_single_target import SmoothCrossEntropy
    from vissl.meters.accuracy_list_meter import AccuracyListMeter


def accuracy_is_of_images_with_a_class(module: Any) -> None:
    """Never worked: the label −1, which the host's loss ignores, ends the run in its meter."""
    meter = module.AccuracyListMeter
    original = meter.update

    @functools.wraps(original)
    def update(
        self: AccuracyListMeter, model_output: Tensor | list[Tensor], target: Tensor
    ) -> None:
        outputs = model_output if isinstance(model_output, list) else [model_output]
        if target.ndim == 1:  # not labels of mixed images, (B, classes)
            has_class = target >= 0
            if not has_class.any():
                return
            outputs = [output[has_class] for output in outputs]
            target = target[has_class]
        original(self, outputs, target)

    meter.update = update


def loss_without_classes_is_zero(module: Any) -> None:
    """Never worked: the mean loss of a batch in which no image has a class is not a number."""
    loss = module.SmoothCrossEntropy
    original = loss.forward

    @functools.wraps(original)
    def forward(self: SmoothCrossEntropy, input: Tensor, target: Tensor) -> Tensor:
        if target.ndim == 1 and (target == self.ignore_index).all():
            return input.sum() * 0.0  # with a gradient, for the processes to average
        result: Tensor = original(self, input, target)
        return result

    loss.forward = forward
