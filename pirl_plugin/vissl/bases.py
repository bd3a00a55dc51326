"""The host's base classes of our registered parts."""

from __future__ import annotations

from classy_vision.dataset.transforms.classy_transform import ClassyTransform
from classy_vision.hooks.classy_hook import ClassyHook
from classy_vision.losses import ClassyLoss

__all__ = ["ClassyHook", "ClassyLoss", "ClassyTransform", "QuietHook"]


class QuietHook(ClassyHook):
    """Does nothing at all points of the host's loop; subclasses override the needed points."""

    on_start = on_phase_start = on_forward = on_loss_and_meter = on_backward = ClassyHook._noop
    on_update = on_step = on_phase_end = on_end = ClassyHook._noop
