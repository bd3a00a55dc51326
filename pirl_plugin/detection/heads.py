"""The box head of MoCo's detection protocol, registered with Detectron2."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from detectron2.config import CfgNode
    from detectron2.layers import ShapeSpec

NAME = "Res5ROIHeadsExtraNorm"  # as VISSL's tools/object_detection_benchmark.py calls its own


def register_extra_norm() -> None:
    """Register the head unless the process has one of that name, such as VISSL's.

    MoCo (arXiv 1911.05722, Sec. 4.2) trains batch norm during fine-tuning, and puts one more after
    res5, whose features reach the box predictor at a scale it can learn from.
    """
    from detectron2.layers import get_norm
    from detectron2.modeling.roi_heads import ROI_HEADS_REGISTRY, Res5ROIHeads

    if NAME in ROI_HEADS_REGISTRY:
        return

    class Res5ROIHeadsExtraNorm(Res5ROIHeads):
        """``Res5ROIHeads`` whose res5 ends in ``norm``, of the kind ``MODEL.RESNETS.NORM``."""

        @classmethod
        def from_config(cls, cfg: CfgNode, input_shape: dict[str, ShapeSpec]) -> dict[str, object]:
            """Detectron2's parts of the head, res5 with one layer more."""
            parts = super().from_config(cfg, input_shape)
            res5 = parts["res5"]
            res5.add_module("norm", get_norm(cfg.MODEL.RESNETS.NORM, res5[-1].out_channels))
            return parts

    ROI_HEADS_REGISTRY.register(Res5ROIHeadsExtraNorm)
