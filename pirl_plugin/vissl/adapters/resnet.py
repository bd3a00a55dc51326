"""The trunk ``pirl_resnet`` as VISSL constructs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pirl_plugin.models.resnet import ResNetTrunk, read_section

if TYPE_CHECKING:
    from vissl.config import AttrDict


class PIRLResNet(ResNetTrunk):
    """The trunk ``pirl_resnet``: :class:`~pirl_plugin.models.resnet.ResNetTrunk` from a section.

    Its section of the configuration, all keys optional::

        MODEL:
          TRUNK:
            NAME: pirl_resnet
            PIRL_RESNET: {DEPTH: 18, WIDTH_MULTIPLIER: 1, SMALL_STEM: false}

    Args:
        model_config: the host's ``MODEL`` section.
        model_name: the trunk's name; not used.

    Raises:
        ValueError: an unknown key or depth, or a width that is not positive.
    """

    def __init__(self, model_config: AttrDict, model_name: str = "pirl_resnet") -> None:
        super().__init__(**read_section(dict(model_config.TRUNK.get("PIRL_RESNET") or {})))
