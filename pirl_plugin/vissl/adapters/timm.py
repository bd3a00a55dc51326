"""The trunk ``pirl_timm`` as VISSL constructs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pirl_plugin.models.timm_trunk import TimmTrunk, read_timm_section

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
        super().__init__(*read_timm_section(model_config.TRUNK.get("PIRL_TIMM") or {}))
