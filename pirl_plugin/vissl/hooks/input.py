"""How the model runs: batches normalised on its device, memory format, precision, compilation."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pirl_plugin.views.normalization import normalize_images
from pirl_plugin.views.statistics import IMAGENET_MEAN, IMAGENET_STD
from pirl_plugin.vissl.hooks.base import QuietHook
from pirl_plugin.vissl.sections import read_section

if TYPE_CHECKING:
    from vissl.config import AttrDict
    from vissl.trainer.train_task import SelfSupervisionTask


@dataclass(frozen=True)
class InputSettings:
    """Values of ``HOOKS.PIRL_INPUT``, all optional.

    Attributes:
        mean: of the channels, on a scale of 0 to 1.
        std: standard deviation of the channels.
        channels_last: memory format of inputs and weights, in which convolutions are faster.
        autocast: None, or ``bfloat16`` to run the model (never the loss) in it.
        compile: whether torch.compile compiles the trunk, in the first steps, for minutes; and
            again for a smaller last batch, which ``DATA.TRAIN.DROP_LAST: true`` leaves out.
        prefetch: whether workers prepare the next batches while the model trains, rather than each
            batch together with the run's process before its step; None: on a GPU. The loader
            reads it.

    Raises:
        ValueError: a value is none of these; float16 needs the host's own ``MODEL.AMP_PARAMS``,
            which scales the loss.
    """

    mean: list[float] = field(default_factory=lambda: list(IMAGENET_MEAN))
    std: list[float] = field(default_factory=lambda: list(IMAGENET_STD))
    channels_last: bool = True
    autocast: str | None = None
    compile: bool = False
    prefetch: bool | None = None

    def __post_init__(self) -> None:
        if self.autocast not in (None, "bfloat16"):
            raise ValueError(
                f"config.HOOKS.PIRL_INPUT.autocast = {self.autocast}: expected null or bfloat16; "
                f"for float16 use MODEL.AMP_PARAMS of the host, which scales the loss"
            )
        for name, values in (("mean", self.mean), ("std", self.std)):
            good = [math.isfinite(value) and (value > 0 or name == "mean") for value in values]
            if len(good) != 3 or not all(good):
                raise ValueError(
                    f"config.HOOKS.PIRL_INPUT.{name} = {values}: expected three finite numbers, "
                    f"one for each channel{', above 0' if name == 'std' else ''}"
                )


class PIRLInputHook(QuietHook):
    """Installs, at the start, a forward pre-hook on the model; the host has no hook before it.

    Loaders hand over uint8, a quarter of the bytes of float32.

    Args:
        settings: of the section.
    """

    def __init__(self, settings: InputSettings | None = None) -> None:
        super().__init__()
        self.settings = settings or InputSettings()

    @classmethod
    def from_config(cls, config: AttrDict) -> PIRLInputHook:
        """Build the hook from the host's configuration."""
        return cls(read_section(InputSettings, config, "HOOKS.PIRL_INPUT"))

    @property
    def memory_format(self) -> torch.memory_format:
        """Of inputs and weights."""
        return torch.channels_last if self.settings.channels_last else torch.contiguous_format

    def on_start(self, task: SelfSupervisionTask) -> None:
        """Register the forward pre-hook on the model that DistributedDataParallel wraps."""
        model = task.base_model
        model.register_forward_pre_hook(lambda module, inputs: (self.prepare(inputs[0]),))
        if self.settings.autocast == "bfloat16":
            model.forward = torch.autocast(task.device.type, torch.bfloat16)(model.forward)

    def prepare_model(self, model: nn.Module) -> None:
        """Lay the weights out as the inputs, and compile the trunk, if so configured; in place.

        To be called before DistributedDataParallel lays out its buckets of gradients. Names in the
        state dictionary stay as they are.

        Args:
            model: one with a ``trunk``, or the trunk itself.
        """
        model.to(memory_format=self.memory_format)
        if self.settings.compile:
            # Image and patches are two shapes: dynamic ones would be slower for both.
            getattr(model, "trunk", model).compile(dynamic=False)

    def prepare(self, batch: object) -> object:
        """Convert the uint8 tensors of a batch, a tensor or a dictionary of them; leave others.

        Args:
            batch: uint8 ``(B, 3, H, W)``, or a dictionary of such.

        Returns:
            The same with float32 ``(B, 3, H, W)``, see
            :func:`pirl_plugin.views.normalization.normalize_images`.
        """
        if isinstance(batch, dict):
            return {key: self.prepare(value) for key, value in batch.items()}
        if not isinstance(batch, Tensor) or batch.dtype != torch.uint8:
            return batch
        mean, std = tuple(self.settings.mean), tuple(self.settings.std)
        return normalize_images(batch, mean, std, self.memory_format)
