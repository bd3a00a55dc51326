"""What our hooks share: the base class, and numbers for TensorBoard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pirl_plugin.vissl.bases import ClassyHook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vissl.trainer.train_task import SelfSupervisionTask


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


def write_scalars(task: SelfSupervisionTask, group: str, values: Mapping[str, float]) -> None:
    """Write ``values`` to TensorBoard, where the host does, as ``GROUP/NAME`` at the loss's step.

    Args:
        task: the host's.
        group: of the names.
        values: name → value; spaces in names become underscores.
    """
    for hook in task.hooks:
        writer = getattr(hook, "tb_writer", None)
        if writer is not None:
            for name, value in values.items():
                writer.add_scalar(f"{group}/{name.replace(' ', '_')}", value, task.loss.step)
