"""Load, save and export checkpoints; no other package opens them."""
