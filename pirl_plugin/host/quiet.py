"""Silence, at their source, the host's warnings that its user can do nothing about."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

# How each message begins -> where it comes from.
_WARNINGS = {
    r"(?s).*The 'torchvision\.(transforms|datasets)\._(functional_)?video": "Classy Vision's video",
    r"(?s).*pkg_resources is deprecated": "vissl.utils.misc",
    r"(?s).*torch\.jit\.script": "fairscale and Classy Vision decorators",
    r"(?s).*The `torchvision\.": "Classy Vision's video transforms",
    r"(?s).*broadcast_buffers": "DistributedDataParallel, as the host sets it",
    r"(?s).*pin_memory' argument is set as true but no accelerator": "the host's default on a CPU",
}


def silence_host_warnings(module: ModuleType) -> None:
    """Install the filters in this process, before the host's modules run and warn."""
    for message in _WARNINGS:
        warnings.filterwarnings("ignore", message=message)
