"""Size, mean and deviation of a network's images, a part of its weights; and normalisation."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pirl_plugin.system.failures import Refused
from pirl_plugin.views import IMAGENET_MEAN, IMAGENET_STD

_SIZE = 224
_TRANSFORM_SIZES = ("image_size", "size", "crop_size_image")  # ours, torchvision's, VISSL's PIRL


@dataclass(frozen=True)
class Preprocessing:
    """Size and statistics of a network's images.

    Attributes:
        size: side of the square images, pixels.
        mean: mean of each channel, on a scale of 0 to 1.
        std: standard deviation of each channel, on the same scale.
        origin: where the values come from, in words.
        is_known: whether the checkpoint or the user names them; only then, they are written.

    Raises:
        ValueError: mean or deviation is not on the scale of 0 to 1.

    Example:
        >>> print(Preprocessing(size=64, origin="of the run"))
        64 px, mean 0.485 0.456 0.406, std 0.229 0.224 0.225 (of the run)
    """

    size: int = _SIZE
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    origin: str = "of ImageNet, because the checkpoint names none"
    is_known: bool = False

    def __post_init__(self) -> None:
        # Those of levels from 0 to 255 would make all images nearly the same, in silence.
        levels = np.asarray(self.mean)
        deviations = np.asarray(self.std)
        if levels.shape != (3,) or not ((levels >= 0) & (levels <= 1)).all():
            raise Refused(
                f"mean = {self.mean}: expected three numbers from 0 to 1, one for each channel; "
                f"divide levels from 0 to 255 by 255"
            )
        if deviations.shape != (3,) or not ((deviations > 0) & (deviations <= 1)).all():
            raise Refused(
                f"std = {self.std}: expected three numbers above 0, at most 1, one for each "
                f"channel; divide deviations of levels from 0 to 255 by 255"
            )

    def __str__(self) -> str:
        mean = "{:.5g} {:.5g} {:.5g}".format(*self.mean)
        std = "{:.5g} {:.5g} {:.5g}".format(*self.std)
        return f"{self.size} px, mean {mean}, std {std} ({self.origin})"

    def with_values(
        self,
        size: int | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        origin: str = "",
    ) -> Preprocessing:
        """Return a copy with other values; None keeps a value.

        Args:
            size: side of the images, pixels.
            mean: mean of each channel.
            std: standard deviation of each channel.
            origin: where the values come from; empty: the user gives them, if there are any.
        """
        values: dict[str, Any] = {}
        if size is not None:
            values["size"] = int(size)
        if mean is not None:
            values["mean"] = tuple(map(float, mean))
        if std is not None:
            values["std"] = tuple(map(float, std))
        if not values and not origin:
            return self
        origin = origin or f"--{', --'.join(values)} as given; {self.origin}"
        return replace(self, **values, origin=origin, is_known=True)

    def of_timm_options(self, options: Mapping[str, object] | None) -> Preprocessing:
        """Return a copy with the size of timm's option ``img_size``, a number or a pair."""
        size = (options or {}).get("img_size")
        if isinstance(size, (list, tuple)):
            size = size[0]
        if not isinstance(size, int):
            return self
        return replace(self, size=size, origin=f"img_size as given; {self.origin}", is_known=True)

    def record(self) -> dict[str, Any]:
        """Return the values for a file of weights; :meth:`with_values` takes them."""
        return {"size": self.size, "mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Preprocessing:
        """Return the preprocessing of a run from its configuration.

        ``HOOKS.PIRL_INPUT`` is what pre-training reads. Benchmarks and VISSL's own approaches have
        a transform ``Normalize``.
        """
        data = config.get("DATA") or {}
        transforms = (data.get("TRAIN") or {}).get("TRANSFORMS") or []
        section = (config.get("HOOKS") or {}).get("PIRL_INPUT") or {}
        # The first of them that has values: our hook, a transform, the host's defaults.
        mean = section.get("mean")
        std = section.get("std")
        for transform in transforms:
            if transform.get("name") == "Normalize":
                mean = mean or transform.get("mean")
                std = std or transform.get("std")
        return cls().with_values(
            size_of_transforms(transforms),
            mean or data.get("MEAN") or None,
            std or data.get("STD") or None,
            origin="of the checkpoint's run",
        )

    @classmethod
    def from_timm(cls, pretrained: Mapping[str, Any], name: str) -> Preprocessing:
        """Return the preprocessing of timm's ``pretrained_cfg``."""
        size = (pretrained.get("input_size") or (3, _SIZE, _SIZE))[-1]
        mean = pretrained.get("mean")
        return cls().with_values(size, mean, pretrained.get("std"), f"of timm's {name}")


def size_of_transforms(transforms: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the side of the images after a configuration's ``TRANSFORMS``, pixels.

    Returns:
        The size; None if no transform has one.

    Example:
        >>> size_of_transforms([{"name": "Resize", "size": 73}, {"name": "CenterCrop", "size": 64}])
        64
    """
    for transform in reversed(transforms):  # a crop follows an earlier resizing
        for key in _TRANSFORM_SIZES:
            size = transform.get(key)
            if isinstance(size, Sequence) and len(set(size)) == 1:
                size = size[0]
            if isinstance(size, int):
                return size
    return None


def normalize_images(
    images: torch.Tensor,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    memory_format: torch.memory_format = torch.channels_last,
) -> torch.Tensor:
    """Normalise images or patches: (x / 255 − mean) / std.

    Args:
        images: uint8 ``(B, 3, H, W)``, on any device.
        mean: mean of each channel, on a scale of 0 to 1.
        std: standard deviation of each channel, on the same scale.
        memory_format: format of the result; convolutions are faster in channels-last.

    Returns:
        float32 ``(B, 3, H, W)``, on the same device.

    Raises:
        ValueError: the images are not uint8, or have another shape; a mean or a deviation is not
            on the scale of 0 to 1.

    Example:
        >>> white = torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)
        >>> normalize_images(white, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.25)).flatten()
        tensor([1., 1., 2.])
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        remedy = ""
        if images.ndim == 5:  # (B, 9, 3, P, P), of torch's default collation
            remedy = "; give DataLoader(…, collate_fn=collate_views)"
        raise Refused(
            f"images are {images.dtype} {tuple(images.shape)}: expected uint8 (B, 3, H, W), RGB "
            f"levels from 0 to 255{remedy}"
        )
    constants = _scale_and_shift(tuple(map(float, mean)), tuple(map(float, std)))
    # Non-blocking: otherwise this small copy would wait for all queued work of a GPU.
    scale, shift = constants.to(images.device, non_blocking=True)
    return images.to(torch.float32, memory_format=memory_format).mul_(scale).add_(shift)


@functools.cache  # each step asks for the same
def _scale_and_shift(mean: tuple[float, ...], std: tuple[float, ...]) -> torch.Tensor:
    """Check the statistics; return factors and offsets of the channels, float32 (2, 1, 3, 1, 1)."""
    checked = Preprocessing(mean=mean, std=std)
    # In float64, so that each of them is rounded only once.
    levels = torch.tensor(checked.mean, dtype=torch.float64, device="cpu")
    deviations = torch.tensor(checked.std, dtype=torch.float64, device="cpu")
    constants = torch.stack([1 / (255 * deviations), -levels / deviations])
    return constants.float().view(2, 1, 3, 1, 1)
