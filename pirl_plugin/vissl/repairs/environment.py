"""What the host finds around it: packages that today's Python lacks, and warnings."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import logging
import sys
import types
import warnings
from pathlib import Path

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


def provide_pkg_resources(module: types.ModuleType) -> None:
    """Broke: setuptools 82 removed ``pkg_resources``, which two modules of VISSL import.

    Only these two modules get a replacement, during their import. For the rest of the process,
    ``pkg_resources`` does not exist.
    """
    if "pkg_resources" in sys.modules or importlib.util.find_spec("pkg_resources") is not None:
        return
    sys.modules["pkg_resources"] = _PkgResources("pkg_resources")


def withdraw_pkg_resources(module: types.ModuleType) -> None:
    """Undo :func:`provide_pkg_resources`; VISSL's modules keep their reference."""
    if isinstance(sys.modules.get("pkg_resources"), _PkgResources):
        del sys.modules["pkg_resources"]


class _PkgResources(types.ModuleType):
    """The two functions of ``pkg_resources`` that VISSL calls."""

    get_distribution = staticmethod(importlib.metadata.distribution)

    @staticmethod
    def resource_filename(package: str, resource: str) -> str:
        """Return the path of ``resource`` in a package beside VISSL, such as ``configs``."""
        host = Path(sys.modules["vissl"].__path__[0])
        return str(host.parent / package / resource)


def alias_kinetics400(module: types.ModuleType) -> None:
    """Broke: torchvision 0.15 renamed ``Kinetics400`` to ``Kinetics``.

    ``classy_vision.dataset`` imports the old name, so no module of the host can be imported.
    """
    from torchvision.datasets import kinetics

    if not hasattr(kinetics, "Kinetics400"):
        kinetics.Kinetics400 = kinetics.Kinetics


@functools.cache  # it is asked several times in each step
def nvtx_is_installed(*, original: object) -> bool:
    """Broke: ``is_nvtx_available`` of git main is always true, and each step imports ``nvtx``."""
    return importlib.util.find_spec("nvtx") is not None
