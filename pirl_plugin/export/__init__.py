"""Checkpoints in, weights for Detectron2, torchvision and timm out."""

from pirl_plugin.export.checkpoint import export_checkpoint

__all__ = ["export_checkpoint"]
