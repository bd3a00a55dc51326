"""How the model runs: batches normalised on its device, memory format, precision, compilation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pirl_plugin.views.normalization import IMAGENET_MEAN, IMAGENET_STD, normalize_images
from pirl_plugin.vissl.hooks.base import QuietHook
from pirl_plugin.vissl.sections import read_section

if TYPE_CHECKING:
    from vissl.config import AttrDict
    from vissl.trainer.train_task import SelfSupervisionTask


@dataclass(frozen=True)
class InputSettings:
    """Values of ``HOOKS.PIRL_INPUT``, all optional.

    Raises:
        ValueError: a value is none of these.
    """

    mean: list[float] = field(default_factory=lambda: list(IMAGENET_MEAN))  # of channels in [0, 1]
    std: list[float] = field(default_factory=lambda: list(IMAGENET_STD))
    channels_last: bool = True  # memory format of inputs and weights; faster convolutions
    autocast: str | None = None  # or bfloat16, to run the model (never the loss) in it
    compile: bool = False  # the trunk by torch.compile, for minutes, and again for another shape

    def __post_init__(self) -> None:
        key = "config.HOOKS.PIRL_INPUT"
        if self.autocast not in (None, "bfloat16"):
            raise ValueError(
                f"{key}.autocast = {self.autocast}: expected null or bfloat16; for float16 use "
                f"MODEL.AMP_PARAMS of the host, which scales the loss"
            )
        normal = torch.tensor([*self.mean, *self.std])
        if len(self.mean) != 3 or len(self.std) != 3 or not normal.isfinite().all() or (
            min(self.std) <= 0
        ):  # fmt: skip
            raise ValueError(
                f"{key}.mean = {self.mean}, std = {self.std}: expected three finite numbers each, "
                f"one for each channel, and std above 0"
            )


class PIRLInputHook(QuietHook):
    """Installs a forward pre-hook on the model, as the host has none; loaders give it uint8."""

    def __init__(self, settings: InputSettings | None = None) -> None:
        super().__init__()
        self.settings = settings or InputSettings()
        last = self.settings.channels_last
        self._format = torch.channels_last if last else torch.contiguous_format

    @classmethod
    def from_config(cls, config: AttrDict) -> PIRLInputHook:
        """Build the hook from the host's configuration."""
        return cls(read_section(InputSettings, config, "HOOKS.PIRL_INPUT"))

    def on_start(self, task: SelfSupervisionTask) -> None:
        """Register the forward pre-hook on the model that DistributedDataParallel wraps."""
        model = task.base_model
        model.register_forward_pre_hook(lambda module, inputs: (self.prepare(inputs[0]),))
        if self.settings.autocast == "bfloat16":
            model.forward = torch.autocast(task.device.type, torch.bfloat16)(model.forward)

    def prepare_model(self, model: nn.Module) -> None:
        """Lay the weights out as the inputs, and compile the trunk, if so configured; in place.

        Call it before DistributedDataParallel lays out its buckets of gradients.
        """
        model.to(memory_format=self._format)
        if self.settings.compile:
            # Image and patches are two shapes: dynamic ones would be slower for both.
            getattr(model, "trunk", model).compile(dynamic=False)

    def prepare(self, batch: object) -> object:
        """Return a tensor or dictionary with uint8 ``(B, 3, H, W)`` normalised, in float32."""
        if isinstance(batch, dict):
            return {key: self.prepare(value) for key, value in batch.items()}
        if not isinstance(batch, Tensor) or batch.dtype != torch.uint8:
            return batch
        mean, std = tuple(self.settings.mean), tuple(self.settings.std)
        return normalize_images(batch, mean, std, self._format)
