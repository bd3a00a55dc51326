"""The host's base classes that our registered parts subclass.

Raises:
    ModuleNotFoundError: VISSL, which brings Classy Vision, is not installed.
"""

from __future__ import annotations

from pirl_plugin.settings import NOT_INSTALLED

try:
    from classy_vision.dataset.transforms.classy_transform import ClassyTransform
    from classy_vision.hooks.classy_hook import ClassyHook
    from classy_vision.losses import ClassyLoss
except ModuleNotFoundError as error:
    if error.name != "classy_vision":
        raise
    raise ModuleNotFoundError(NOT_INSTALLED, name="classy_vision") from None

__all__ = ["ClassyHook", "ClassyLoss", "ClassyTransform", "QuietHook"]


class QuietHook(ClassyHook):
    """Does nothing at any point of the host's loop; subclasses override the points they need."""

    on_start = on_phase_start = on_forward = on_loss_and_meter = on_backward = ClassyHook._noop
    on_update = on_step = on_phase_end = on_end = ClassyHook._noop
