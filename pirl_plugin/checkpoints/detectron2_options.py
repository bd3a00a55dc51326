"""What a Detectron2 configuration must say of a ResNet trunk of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pirl_plugin.checkpoints.trunk import Trunk


def detectron2_options(found: Trunk) -> dict[str, bool | int | str | list[float]]:
    """Keys and values that build the trunk's network, with torchvision's strides and pixels.

    Example:
        >>> from pirl_plugin.checkpoints.trunk import Trunk
        >>> detectron2_options(Trunk({}, 50, 2, False, "", ()))["MODEL.RESNETS.WIDTH_PER_GROUP"]
        128
    """
    from pirl_plugin.checkpoints.shapes import is_bottleneck

    stem, basic = round(64 * found.width), not is_bottleneck(found.depth)
    return {
        "MODEL.RESNETS.DEPTH": found.depth,
        "MODEL.RESNETS.STEM_OUT_CHANNELS": stem,
        "MODEL.RESNETS.RES2_OUT_CHANNELS": stem if basic else 4 * stem,
        "MODEL.RESNETS.WIDTH_PER_GROUP": 64 if basic else stem,
        "MODEL.RESNETS.STRIDE_IN_1X1": False,
        "INPUT.FORMAT": "RGB",
        "MODEL.PIXEL_MEAN": [123.675, 116.28, 103.53],
        "MODEL.PIXEL_STD": [58.395, 57.12, 57.375],
    }
