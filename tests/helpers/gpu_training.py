"""A small PIRL in a loop of plain PyTorch, from the package's public names."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pirl_plugin import PIRLHead, PIRLLoss, normalize_images

if TYPE_CHECKING:
    from torch import Tensor

ROWS, BATCH, SIDE, PATCH = 500, 8, 24, 8


class Pretext(nn.Module):
    """Two convolutions, and both heads: ``[g(v_It), f(v_I)]``."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.f, self.g = PIRLHead(32, 16), PIRLHead(32, 16, num_patches=9)

    def forward(self, images: Tensor, patches: Tensor) -> list[Tensor]:
        return [self.g(self.trunk(patches)), self.f(self.trunk(images))]


def make_batch(seed: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Images and patches as a loader gives them, uint8, and rows; in pinned memory for a GPU."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (BATCH, 3, SIDE, SIDE), generator=generator)
    patches = torch.randint(0, 256, (9 * BATCH, 3, PATCH, PATCH), generator=generator)
    rows = torch.randint(-1, ROWS, (BATCH,), generator=generator)
    made = (images.to(torch.uint8), patches.to(torch.uint8), rows)
    return tuple(t.pin_memory() for t in made) if device == "cuda" else made  # type: ignore[return-value]


class Training:
    """Model, loss and optimiser on a device.

    Args:
        device: ``cpu`` or ``cuda``.
        autocast: the type that the model runs in, or None.
        channels_last: whether weights and inputs are.
        **settings: of the loss.
    """

    def __init__(
        self,
        device: str,
        autocast: torch.dtype | None = None,
        channels_last: bool = True,
        **settings: Any,
    ) -> None:
        layout = torch.channels_last if channels_last else torch.contiguous_format
        self.device, self.layout = device, layout
        self.model = Pretext().to(device, memory_format=layout)
        self.run, self.loss = self.model, PIRLLoss(
            ROWS, embedding_dim=16, num_negatives=64, **{"norm_constant": 1e3, **settings}
        ).to(device)  # fmt: skip
        self.criterion = self.loss
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.autocast = torch.autocast(device, autocast) if autocast else nullcontext()
        # A small scale: a float16 gradient of a first step overflows at the default of 65,536.
        enabled = autocast == torch.float16
        self.scaler = torch.amp.GradScaler(device, init_scale=256.0, enabled=enabled)

    def step(self, seed: int) -> Tensor:
        """One step; returns the loss, on the device. Nothing here waits for a GPU."""
        images, patches, rows = (
            tensor.to(self.device, non_blocking=True) for tensor in make_batch(seed, self.device)
        )
        images, patches = (
            normalize_images(i, memory_format=self.layout) for i in (images, patches)
        )
        with self.autocast:
            output = self.run(images, patches)
            value = self.criterion(output, rows)
        self.optimizer.zero_grad()
        self.scaler.scale(value).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.loss.update(rows, output[-1])
        return value.detach()

    def state(self) -> dict[str, Any]:
        """All that a checkpoint has to hold."""
        parts = ("model", "loss", "optimizer")
        return {part: getattr(self, part).state_dict() for part in parts}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        for part, content in state.items():
            getattr(self, part).load_state_dict(content)
