"""Heads and trunks: PIRL's f and g (Sec. 2.3), ResNets of any width, and any network of timm."""
