"""Hooks of the host's training loop."""

from classy_vision.hooks import ClassyHook


class QuietHook(ClassyHook):
    """Does nothing at all points of the host's loop; subclasses override the needed points."""

    on_start = on_phase_start = on_forward = on_loss_and_meter = on_backward = ClassyHook._noop
    on_update = on_step = on_phase_end = on_end = ClassyHook._noop
