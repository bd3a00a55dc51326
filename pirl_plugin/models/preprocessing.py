"""Size, mean and deviation of the images that a network was trained on: a part of its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pirl_plugin.views import IMAGENET_MEAN, IMAGENET_STD
from pirl_plugin.views.pixels import check_statistics

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
        check_statistics(self.mean, self.std)

    def __str__(self) -> str:
        mean = "{:.5g} {:.5g} {:.5g}".format(*self.mean)
        std = "{:.5g} {:.5g} {:.5g}".format(*self.std)
        return f"{self.size} px, mean {mean}, std {std} ({self.origin})"

    def with_options(
        self,
        size: int | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> Preprocessing:
        """Return a copy with the user's values; None keeps a value."""
        values: dict[str, Any] = {}
        if size is not None:
            values["size"] = size
        if mean is not None:
            values["mean"] = tuple(mean)
        if std is not None:
            values["std"] = tuple(std)
        if not values:
            return self
        origin = f"--{', --'.join(values)} as given; {self.origin}"
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
        """Return the values for a file of weights; :meth:`from_record` reads them."""
        return {"size": self.size, "mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any], origin: str) -> Preprocessing:
        """Return the preprocessing of a record; values that it does not have are ImageNet's."""
        return cls(
            int(record.get("size") or _SIZE),
            tuple(map(float, record.get("mean") or IMAGENET_MEAN)),
            tuple(map(float, record.get("std") or IMAGENET_STD)),
            origin,
            is_known=True,
        )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Preprocessing:
        """Return the preprocessing of a run from its configuration.

        ``HOOKS.PIRL_INPUT`` is what pre-training reads. Benchmarks and VISSL's own approaches have
        a transform ``Normalize``.
        """
        data = config.get("DATA") or {}
        transforms = (data.get("TRAIN") or {}).get("TRANSFORMS") or []
        section = (config.get("HOOKS") or {}).get("PIRL_INPUT") or {}
        normalize: Mapping[str, Any] = next(
            (transform for transform in transforms if transform.get("name") == "Normalize"), {}
        )
        # The first of them that has values: our hook, a transform, the host's defaults.
        record = {
            "size": size_of_transforms(transforms),
            "mean": section.get("mean") or normalize.get("mean") or data.get("MEAN"),
            "std": section.get("std") or normalize.get("std") or data.get("STD"),
        }
        return cls.from_record(record, "of the checkpoint's run")

    @classmethod
    def from_timm(cls, pretrained: Mapping[str, Any], name: str) -> Preprocessing:
        """Return the preprocessing of timm's ``pretrained_cfg``."""
        size = (pretrained.get("input_size") or (3, _SIZE, _SIZE))[-1]
        record = {"size": size, "mean": pretrained.get("mean"), "std": pretrained.get("std")}
        return cls.from_record(record, f"of timm's {name}")


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
