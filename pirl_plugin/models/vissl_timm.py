"""The trunk ``pirl_timm`` as VISSL constructs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pirl_plugin.models.timm_trunk import TimmTrunk

if TYPE_CHECKING:
    from vissl.config import AttrDict


class PIRLTimm(TimmTrunk):
    """The trunk ``pirl_timm``: any network of timm (an optional dependency: ``pip install timm``).

    Its section of the configuration::

        MODEL:
          TRUNK:
            NAME: pirl_timm
            PIRL_TIMM: {NAME: vit_tiny_patch16_224, OPTIONS: {img_size: 64}}

    ``OPTIONS`` are keyword arguments of ``timm.create_model``; it may be left out.

    Args:
        model_config: the host's ``MODEL`` section.
        model_name: the trunk's name; not used.

    Raises:
        TimmMissingError: timm is not installed.
        ValueError: an unknown key or network, or an option that the network does not take.
    """

    def __init__(self, model_config: AttrDict, model_name: str = "pirl_timm") -> None:
        super().__init__(*read_section(model_config.TRUNK.get("PIRL_TIMM") or {}))


def read_section(section: Mapping[str, object]) -> tuple[str, dict[str, Any]]:
    """Name and options of the network that a ``MODEL.TRUNK.PIRL_TIMM`` section asks for.

    Raises:
        ValueError: an unknown key, or no name.
    """
    given = dict(section)
    name, options = given.pop("NAME", None), given.pop("OPTIONS", None)
    if given or not name:
        raise ValueError(
            f"MODEL.TRUNK.PIRL_TIMM = {dict(section)}: expected NAME, a network of timm, and "
            f"OPTIONS, keyword arguments of timm.create_model or nothing"
        )
    return str(name), _plain(options or {})


def _plain(value: object) -> Any:
    """Lists and dictionaries of Python, of what a configuration's classes hold."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(entry) for entry in value]
    return value
