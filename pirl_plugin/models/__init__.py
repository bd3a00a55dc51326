"""Heads f and g (Sec. 2.3), ResNets of any width, networks from timm, and PIRL in one module."""
