"""Numbers for TensorBoard, where the host writes to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vissl.trainer.train_task import SelfSupervisionTask


def write_scalars(task: SelfSupervisionTask, group: str, values: Mapping[str, float]) -> None:
    """Write ``values`` as ``GROUP/NAME`` at the loss's step; nothing without TensorBoard.

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
