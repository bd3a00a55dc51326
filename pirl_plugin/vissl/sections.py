"""This plugin's configuration sections as dataclasses, and values from VISSL's sections.

Does not import VISSL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from pirl_plugin.system.failures import Refused, check
from pirl_plugin.views import IMAGENET_MEAN, IMAGENET_STD

Settings = TypeVar("Settings")

RECORD = "PIRL_RECORD"
"""Key for the run's record in VISSL's configuration, which reaches all ranks and jobs."""
TIMEOUT = "config.HOOKS.PIRL_RUN.timeout_minutes"
"""Key for the time that a rank waits for other ranks and for images."""
_SIZE_KEYS = ("image_size", "size", "crop_size_image")  # ours, torchvision's, VISSL's PIRL


@dataclass(frozen=True)
class InputSettings:
    """Values of ``HOOKS.PIRL_INPUT``, all optional.

    Raises:
        ValueError: a value is invalid.
    """

    mean: list[float] = field(default_factory=partial(list, IMAGENET_MEAN))  # per channel, 0 to 1
    std: list[float] = field(default_factory=partial(list, IMAGENET_STD))  # per channel, 0 to 1
    channels_last: bool = True  # memory format of inputs and weights; faster convolutions
    autocast: str | None = None  # or bfloat16: dtype for the model; the loss uses float32
    compile: bool = False  # compile the trunk; takes minutes for each new shape

    def __post_init__(self) -> None:
        remedy = "For float16, use config.MODEL.AMP_PARAMS, which scales the loss."
        is_supported = self.autocast in (None, "bfloat16")
        check("autocast", self.autocast, is_supported, f"null or bfloat16. {remedy}")


@dataclass(frozen=True)
class MonitorSettings:
    """Values of ``HOOKS.PIRL_MONITOR``, all optional.

    Attributes:
        enabled: whether to measure.
        every: epochs between measurements.
        rows: number of memory bank rows to sample, evenly spread over the data set.
        k: number of neighbors for leave-one-out kNN, for labeled images.
    """

    enabled: bool = True
    every: int = 1
    rows: int = 2048
    k: int = 20

    def __post_init__(self) -> None:
        for name, value in vars(self).items():  # otherwise the first epoch would be lost
            check(name, value, name == "enabled" or value > 0, "a whole number above 0")


@dataclass(frozen=True)
class RunSettings:
    """Values of ``HOOKS.PIRL_RUN``, all optional.

    Attributes:
        max_unreadable: fraction of unreadable images above which the run stops.
        timeout_minutes: how long a rank waits for another rank or for the next image.
    """

    max_unreadable: float = 0.05
    timeout_minutes: float = 10

    def __post_init__(self) -> None:
        is_fraction = 0 <= self.max_unreadable <= 1
        check("max_unreadable", self.max_unreadable, is_fraction, "a fraction from 0 to 1")


def read_section(kind: type[Settings], config: Mapping[str, Any], key: str) -> Settings:
    """Read a configuration section as a dataclass, and check keys and types.

    Args:
        kind: the dataclass, whose defaults replace missing keys.
        config: VISSL's configuration, from its ``config`` section.
        key: dotted key of the section; a missing section gets the defaults.

    Raises:
        ValueError: a key is unknown, a value has the wrong type, or the dataclass refuses it.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    section: Any = config
    for name in key.split("."):
        section = (section or {}).get(name)
    if hasattr(section, "to_dict"):  # OmegaConf does not take VISSL's dictionaries
        section = section.to_dict()
    try:
        merged = OmegaConf.merge(OmegaConf.structured(kind), section or {})
        settings: Settings = OmegaConf.to_object(merged)  # type: ignore[assignment]
    except OmegaConfBaseException as error:
        at = f"config.{key}.{error.full_key or error.key}"
        reason = str(error).splitlines()[0]
        raise Refused(f"{at}: unknown key or wrong type. {reason}") from None
    except Refused as error:  # the message starts with the field's name
        raise Refused(f"config.{key}.{error}") from None
    return settings


def is_ours(config: Mapping[str, Any]) -> bool:
    """Return whether a composed configuration is for a run with this plugin.

    The loss is ``pirl_loss``, or ``HOOKS`` has a section ``PIRL_INPUT`` or ``PIRL_RUN``. Later, the
    key :data:`RECORD` marks such a run.
    """
    hooks = config.get("HOOKS") or {}
    loss = (config.get("LOSS") or {}).get("name")
    return loss == "pirl_loss" or "PIRL_INPUT" in hooks or "PIRL_RUN" in hooks


def num_micro_batches(config: Mapping[str, Any]) -> int:
    """Return the number of micro-batches per process batch."""
    number: int = (config.get("TRAINER") or {}).get("PIRL_MICRO_BATCHES", 1)
    return number


def num_ranks(config: Mapping[str, Any]) -> int:
    """Return the number of processes across all nodes."""
    section = config["DISTRIBUTED"]
    return int(section["NUM_NODES"] * section["NUM_PROC_PER_NODE"])


def size_of_transforms(transforms: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the image size after a configuration's ``TRANSFORMS``, in pixels.

    Returns:
        The size; None if no transform sets one.

    Example:
        >>> size_of_transforms([{"name": "Resize", "size": 73}, {"name": "CenterCrop", "size": 64}])
        64
    """
    for transform in reversed(transforms):  # a crop follows resizing
        for key in _SIZE_KEYS:
            size = transform.get(key)
            if isinstance(size, Sequence) and len(set(size)) == 1:
                size = size[0]
            if isinstance(size, int):
                return size
    return None
