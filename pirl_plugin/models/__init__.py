"""Heads f and g (Sec. 2.3), ResNets of any width, timm networks, and PIRL in one module."""
