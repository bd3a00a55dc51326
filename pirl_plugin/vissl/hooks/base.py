"""What our hooks share: the base class, numbers for TensorBoard, the section ``HOOKS.PIRL_RUN``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pirl_plugin.vissl.bases import ClassyHook
from pirl_plugin.vissl.sections import read_section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vissl.config import AttrDict
    from vissl.trainer.train_task import SelfSupervisionTask


class QuietHook(ClassyHook):
    """Does nothing at any point of the host's loop; subclasses override the points they need."""

    on_start = on_phase_start = on_forward = on_loss_and_meter = on_backward = ClassyHook._noop
    on_update = on_step = on_phase_end = on_end = ClassyHook._noop


def write_scalars(task: SelfSupervisionTask, group: str, values: Mapping[str, float]) -> None:
    """Write values to TensorBoard, where the host does, as ``GROUP/NAME`` at the loss's step."""
    for hook in task.hooks:
        writer = getattr(hook, "tb_writer", None)
        if writer is not None:
            for name, value in values.items():
                writer.add_scalar(f"{group}/{name.replace(' ', '_')}", value, task.loss.step)


@dataclass(frozen=True)
class RunSettings:
    """Values of ``HOOKS.PIRL_RUN``, all optional.

    Raises:
        ValueError: a value is none of these.
    """

    max_unreadable: float = 0.05  # share of the last 10,000 images; above it the run stops
    timeout_minutes: float = 10  # how long a rank waits for another one

    def __post_init__(self) -> None:
        for name, good, expected in (
            ("max_unreadable", 0 <= self.max_unreadable <= 1, "a share from 0 to 1"),
            ("timeout_minutes", 0 < self.timeout_minutes < 1e6, "minutes above 0"),
        ):
            if not good:
                value = getattr(self, name)
                raise ValueError(f"config.HOOKS.PIRL_RUN.{name} = {value}: expected {expected}")

    @classmethod
    def from_config(cls, config: AttrDict) -> RunSettings:
        """Read them from the host's configuration."""
        return read_section(cls, config, "HOOKS.PIRL_RUN")
