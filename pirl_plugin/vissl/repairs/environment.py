"""VISSL's environment: packages that are missing today, paths without labels, and warnings."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import logging
import os
import sys
import types
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vissl.config import AttrDict

# Regular expressions that warnings begin with.
_WARNINGS = (
    r"The 'torchvision\.[\w.]*_video' module is deprecated",  # Classy Vision's video transforms
    r"pkg_resources is deprecated",  # vissl.utils.misc, with setuptools below 82
    r"`torch\.jit\.script",  # fairscale and Classy Vision decorate with it
    r"(?s).*broadcast_buffers",  # DistributedDataParallel, as VISSL sets it up
    r"'pin_memory' argument is set as true but no accelerator",  # VISSL's default, on a CPU
    r"barrier\(\): using the device under current context",  # Classy Vision's barrier names none
    r"`torch\.cuda\.amp\.(GradScaler|autocast)\(args",  # VISSL's mixed precision
)

_PKG_RESOURCES = types.ModuleType("pkg_resources")  # with the two functions that VISSL calls


def silence_host_warnings(module: types.ModuleType) -> None:
    """Install the filters in this process, before VISSL's modules run and warn."""
    # "No CUDA runtime is found" matters only for compiling extensions.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    for message in _WARNINGS:
        warnings.filterwarnings("ignore", message=message)


def provide_pkg_resources(module: types.ModuleType) -> None:
    """Broke: setuptools 82 removed ``pkg_resources``, which two VISSL modules import.

    Only these two modules get a replacement, while they are imported.
    """
    if "pkg_resources" in sys.modules or importlib.util.find_spec("pkg_resources") is not None:
        return
    beside_vissl = os.path.dirname(sys.modules["vissl"].__path__[0])
    vars(_PKG_RESOURCES).update(
        get_distribution=importlib.metadata.distribution,
        # Package and file -> path of a file in a package beside VISSL, such as ``configs``.
        resource_filename=functools.partial(os.path.join, beside_vissl),
    )
    sys.modules["pkg_resources"] = _PKG_RESOURCES


def withdraw_pkg_resources(module: types.ModuleType) -> None:
    """Undo :func:`provide_pkg_resources`; VISSL's modules keep their reference."""
    if sys.modules.get("pkg_resources") is _PKG_RESOURCES:
        del sys.modules["pkg_resources"]


def alias_kinetics400(module: types.ModuleType) -> None:
    """Broke: torchvision 0.15 renamed ``Kinetics400`` to ``Kinetics``.

    ``classy_vision.dataset`` imports the old name, so no VISSL module can be imported.
    """
    from torchvision.datasets import kinetics

    if not hasattr(kinetics, "Kinetics400"):
        kinetics.Kinetics400 = kinetics.Kinetics


@functools.cache  # called several times in each step
def find_nvtx(*, original: object) -> bool:
    """Broke: ``is_nvtx_available`` in git main is always true, and each step imports ``nvtx``."""
    return importlib.util.find_spec("nvtx") is not None


def allow_paths_without_labels(
    split: str, dataset_config: AttrDict, *, original: Callable[..., Any]
) -> tuple[list[str], list[str]]:
    """Never worked: ``DATA_PATHS`` without ``LABEL_PATHS`` raises ``KeyError``.

    ``get_data_files`` then looks for labels in the catalog, by ``DATASET_NAMES``. It drops a label
    path that does not exist.
    """
    from vissl.data.dataset_catalog import VisslDatasetCatalog

    config = dataset_config[split]
    in_catalog = all(map(VisslDatasetCatalog.has_data, config.DATASET_NAMES))
    if config.DATA_PATHS and not config.LABEL_PATHS and not in_catalog:
        config.LABEL_PATHS = [""] * len(config.DATA_PATHS)  # the empty path never exists
    files: tuple[list[str], list[str]] = original(split, dataset_config)
    return files
