"""Load, save and export checkpoints; no other package opens them."""

FORMATS = ("detectron2", "torchvision", "safetensors", "vissl", "timm", "onnx")
"""What :func:`pirl_plugin.export_checkpoint` writes."""
