"""A network's record: name, options, and the images it expects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from pirl_plugin.images.decode import MAX_PIXELS
from pirl_plugin.images.reading import RGB, PixelType, Reading
from pirl_plugin.system.failures import check, check_name
from pirl_plugin.system.text import counted
from pirl_plugin.views import IMAGENET_MEAN, IMAGENET_STD

LARGEST_SIZE = math.isqrt(MAX_PIXELS)
"""Largest image size, in pixels."""
MOST_CHANNELS = 4096
RESNET = "pirl_resnet"
"""The architecture of :class:`pirl_plugin.WideResNet`."""
UNKNOWN = "unknown"
"""The origin of a mean and standard deviation that only the user knows."""
_LABELS = {"mean": "mean", "std": "std", "low": "min", "high": "max"}
_IMAGES = ("size", "dtype", "nodata", "channel_names", *_LABELS)


@dataclass(frozen=True)
class NetworkConfig:
    """A network's name and options, and the images it expects.

    Mean and standard deviation are measured on the images, given, or unknown, if the network was
    trained on float views of the user's own.

    Attributes:
        architecture: ``pirl_resnet`` for :class:`pirl_plugin.WideResNet`, timm's name, or empty if
            the name is unknown.
        options: keyword arguments for the network's constructor.
        size: image size in pixels.
        mean: per-channel mean. For uint8 images, white is 1; other dtypes keep their units.
        std: per-channel standard deviation, in the same units.
        dtype: pixel dtype: ``uint8``, ``uint16`` or ``float32``.
        nodata: the value of missing pixels, besides NaN and the value that a file names.
        channel_names: names of the channels, if each has a file of its own.
        low: smallest value per channel, where the mean was measured.
        high: largest value per channel.
        rgb: whether images are converted to RGB in uint8; not recorded.
        origins: where the values above come from, by name; defaults are absent.
            ``unknown`` for a mean and standard deviation that only the user knows.
        network_class: class name of a network that only the user's code can build.

    Raises:
        Refused: a value has the wrong type, or is out of range.

    Example:
        >>> print(NetworkConfig().with_values("run", size=64))
        64 px (run), mean 0.485 0.456 0.406 (default), std 0.229 0.224 0.225 (default)
    """

    architecture: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    size: int = 224
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    dtype: str = "uint8"
    nodata: float | None = None
    channel_names: tuple[str, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    rgb: bool = False
    origins: Mapping[str, str] = field(default_factory=dict)
    network_class: str = ""

    def __post_init__(self) -> None:
        # These values may come from a file.
        is_size = type(self.size) is int and 1 <= self.size <= LARGEST_SIZE
        check("size", self.size, is_size, f"a whole number from 1 to {LARGEST_SIZE:,}")
        check("channels", self.channels, self.channels <= MOST_CHANNELS, f"up to {MOST_CHANNELS:,}")
        check_name("dtype", self.dtype, ("uint8", "uint16", "float32"))
        mean, std = _default_statistics(self.channels)
        # A frozen instance can be set only in this way.
        object.__setattr__(self, "mean", self.mean or mean)
        object.__setattr__(self, "std", self.std or std)
        fits = len(self.mean) == len(self.std) == self.channels
        fits = fits and all(map(math.isfinite, self.mean + self.std)) and min(self.std) > 0
        expected = f"{self.channels} values each, std > 0"
        check("`mean` and `std`", [self.mean, self.std], fits, expected)

    def __str__(self) -> str:
        parts = [] if self.pixel_type == RGB else [str(self.pixel_type)]
        texts = {"size": f"{self.size} px"}
        if self.nodata is not None:
            texts["nodata"] = f"nodata {self.nodata:.7g}"
        for name, label in _LABELS.items():
            if numbers := getattr(self, name):
                texts[name] = " ".join([label, *map("{:.5g}".format, numbers)])
        for name, text in texts.items():
            origin = self.origins.get(name, "default")
            parts.append(f"{name} unknown" if origin == UNKNOWN else f"{text} ({origin})")
        return ", ".join(parts)

    @property
    def statistics(self) -> str:
        """State of mean and std: ``measured``, ``given`` or ``unknown``; empty for defaults."""
        origin = self.origins.get("mean", "")
        if origin in ("", UNKNOWN):
            return origin
        return "measured" if self.origins.get("low") == origin else "given"

    @property
    def has_statistics(self) -> bool:
        """Whether mean and standard deviation are neither defaults nor unknown."""
        return self.statistics not in ("", UNKNOWN)

    def allows_channels(self, names: tuple[str, ...]) -> bool:
        """Return whether the network can read channels with these names; () for unknown names."""
        return not names or self.channel_names in ((), names)

    @property
    def channels(self) -> int:
        """Number of image channels."""
        named = self.options.get("in_chans") or self.options.get("in_channels")
        unnamed = 3 if self.architecture else len(self.mean) or 3
        return int(named or unnamed)

    @property
    def pixel_type(self) -> PixelType:
        """Number of channels and dtype of the images."""
        return PixelType(self.channels, getattr(torch, self.dtype))

    @property
    def reading(self) -> Reading:
        """How to read the images."""
        return Reading(self.pixel_type, self.rgb, self.nodata, self.mean)

    @property
    def name(self) -> str:
        """The network's name, for messages.

        Example:
            >>> NetworkConfig("pirl_resnet", {"depth": 10, "width": 0.5, "small_stem": True}).name
            'ResNet-10 of width 0.5, 3×3 stem with stride 1'
            >>> NetworkConfig("vit_tiny_patch16_224", {"img_size": 48}).name
            "timm's vit_tiny_patch16_224 (img_size=48)"
        """
        options = self.options
        if self.network_class:
            return self.network_class
        if self.architecture != RESNET:
            listed = ", ".join(f"{key}={value}" for key, value in options.items())
            return f"timm's {self.architecture}{f' ({listed})' if listed else ''}"
        name = f"ResNet-{options['depth']}"
        if options["width"] != 1:
            name += f" of width {options['width']:g}"
        if options["small_stem"]:
            name += ", 3×3 stem with stride 1"
        return name if self.channels == 3 else f"{name}, {counted(self.channels, 'channel')}"

    @property
    def timm_name(self) -> str:
        """The network's name in timm; empty if timm has no such ResNet."""
        if self.architecture != RESNET:
            return self.architecture
        is_usual = self.options["width"] == 1 and not self.options["small_stem"]
        depth = self.options["depth"]
        return f"resnet{depth}" if is_usual and depth != 10 else ""

    @property
    def defaults(self) -> list[str]:
        """Which of ``size``, ``mean`` and ``std`` are defaults, or unknown."""
        names = ("size", "mean", "std")
        return [name for name in names if self.origins.get(name, UNKNOWN) == UNKNOWN]

    def with_values(self, origin: str, **values: Any) -> NetworkConfig:
        """Return a copy with new values; None and () keep a value and its origin.

        Args:
            origin: where the values come from, such as ``run``.
            **values: attributes.
        """
        new = {}
        for name, value in values.items():
            if value in (None, ()):
                continue
            if name in _LABELS:
                value = tuple(map(float, value))
            elif name == "dtype":
                value = str(value).removeprefix("torch.")
            elif name == "channel_names":
                value = tuple(map(str, value))
            new[name] = value
        return replace(self, **new, origins={**self.origins, **dict.fromkeys(new, origin)})

    def with_values_of(self, other: NetworkConfig) -> NetworkConfig:
        """Return a copy with another record's values, except for its defaults."""
        values = {name: getattr(other, name) for name in other.origins}
        return replace(self, **values, origins={**self.origins, **other.origins})

    def with_channels(self, channels: int) -> NetworkConfig:
        """Return a copy for a different number of image channels, with default statistics."""
        if channels == self.channels:
            return self
        options = dict(self.options)
        if self.architecture:
            options["in_channels" if self.architecture == RESNET else "in_chans"] = channels
        return NetworkConfig(
            self.architecture,
            options,
            self.size,
            *_default_statistics(channels),
            origins={name: self.origins[name] for name in self.origins if name == "size"},
            network_class=self.network_class,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the record for a file: plain values, without the defaults."""
        record: dict[str, Any] = {"architecture": self.architecture, "options": dict(self.options)}
        if self.network_class:
            record["class"] = self.network_class
        if self.statistics:
            record["statistics"] = self.statistics
        for name, origin in self.origins.items():
            if origin != UNKNOWN:
                value = getattr(self, name)
                record[name] = list(value) if isinstance(value, tuple) else value
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], origin: str) -> NetworkConfig:
        """Return the network that a file's record describes; see :meth:`to_dict`.

        Args:
            record: the record; its name and options must be safe.
            origin: where it comes from, such as ``file``.
        """
        name = record.get("class", "")
        config = cls(record["architecture"], record["options"], network_class=name)
        if record.get("statistics") == UNKNOWN:
            config = config.with_values(UNKNOWN, mean=config.mean, std=config.std)
        return config.with_values(origin, **{name: record.get(name) for name in _IMAGES})


def network_config_of(network: nn.Module) -> NetworkConfig:
    """Return the record of a network, or of the first trunk in it; defaults if there is none.

    A network from ``timm.create_model`` stores its name and options in timm's attributes.
    """
    for module in network.modules():
        config = getattr(module, "network_config", None)
        if isinstance(config, NetworkConfig):
            return config
    timms = getattr(network, "pretrained_cfg", None) or {}
    options = dict(getattr(network, "_model_args", {}))
    options.pop("num_classes", None)  # a trunk has no classifier
    return NetworkConfig(timms.get("architecture", ""), options)


def _default_statistics(channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the default mean and standard deviation, for images with unknown statistics."""
    if channels == 3:
        return IMAGENET_MEAN, IMAGENET_STD
    return (0.5,) * channels, (0.25,) * channels
