"""Checkpoints in, weights for Detectron2, torchvision and timm out."""

from pirl_plugin.checkpoints.export import export_checkpoint

__all__ = ["export_checkpoint"]
