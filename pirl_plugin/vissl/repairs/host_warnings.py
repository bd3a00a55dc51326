"""Warnings and messages of the host that its users cannot avoid."""

from __future__ import annotations

import logging
import types
import warnings

# Regular expressions of the warnings' beginnings.
_WARNINGS = (
    r"The 'torchvision\.[\w.]*_video' module is deprecated",  # Classy Vision's video transforms
    r"pkg_resources is deprecated",  # vissl.utils.misc, with setuptools below 82
    r"`torch\.jit\.script",  # fairscale and Classy Vision decorate with it
    r"(?s).*broadcast_buffers",  # DistributedDataParallel, as the host sets it up
    r"'pin_memory' argument is set as true but no accelerator",  # the host's default, on a CPU
    r"barrier\(\): using the device under current context",  # Classy Vision's barrier names none
    r"`torch\.cuda\.amp\.(GradScaler|autocast)\(args",  # the host's mixed precision
)


def silence_host_warnings(module: types.ModuleType) -> None:
    """Install the filters in this process, before the host's modules run and warn."""
    # Its message "No CUDA runtime is found" is only relevant for compiling extensions.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    for message in _WARNINGS:
        warnings.filterwarnings("ignore", message=message)
