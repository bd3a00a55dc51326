"""A hook of the host that does nothing, for others to do one thing."""

from __future__ import annotations

from pirl_plugin.vissl.bases import ClassyHook


class QuietHook(ClassyHook):
    """Does nothing at any point of the host's loop; subclasses override the points they need."""

    on_start = ClassyHook._noop
    on_phase_start = ClassyHook._noop
    on_forward = ClassyHook._noop
    on_loss_and_meter = ClassyHook._noop
    on_backward = ClassyHook._noop
    on_update = ClassyHook._noop
    on_step = ClassyHook._noop
    on_phase_end = ClassyHook._noop
    on_end = ClassyHook._noop
