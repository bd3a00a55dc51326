"""What today's Python, torch and setuptools broke in VISSL, and the smallest mend of each.

Every function here is a step of :mod:`pirl_plugin.host.table`. It tests for the feature it needs
rather than for a version, changes nothing where the host is sound, and records what it mended with
:func:`mended`, which the line at the start of a run quotes. No file of the host is touched.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MENDED: list[str] = []


def mended(what: str) -> None:
    """Record, once, one mend that was needed in this process."""
    if what not in MENDED:
        MENDED.append(what)


def alias_kinetics400(module: types.ModuleType) -> None:
    """Broke: torchvision 0.15 renamed ``Kinetics400`` to ``Kinetics``; Classy Vision imports it."""
    from torchvision.datasets import kinetics

    if not hasattr(kinetics, "Kinetics400"):
        kinetics.Kinetics400 = kinetics.Kinetics
        mended("Kinetics400")


def lend_pkg_resources(module: types.ModuleType) -> None:
    """Broke: setuptools 82 dropped ``pkg_resources``, which two modules of VISSL import.

    A stand-in is lent to those two only, while they are imported: the rest of the process goes on
    seeing that there is no ``pkg_resources``.
    """
    if "pkg_resources" in sys.modules or importlib.util.find_spec("pkg_resources") is not None:
        return
    sys.modules["pkg_resources"] = _PkgResources("pkg_resources")
    mended("pkg_resources")


def take_back_pkg_resources(module: types.ModuleType) -> None:
    """End the loan of :func:`lend_pkg_resources`; VISSL's modules keep their reference."""
    if isinstance(sys.modules.get("pkg_resources"), _PkgResources):
        del sys.modules["pkg_resources"]


class _PkgResources(types.ModuleType):
    """The two functions of ``pkg_resources`` that VISSL calls."""

    @staticmethod
    def resource_filename(package: str, resource: str) -> str:
        """Path of ``resource`` inside an importable ``package``."""
        spec = importlib.util.find_spec(package)
        folders = list(spec.submodule_search_locations or []) if spec is not None else []
        if not folders:
            raise ModuleNotFoundError(f"no package '{package}' to look for '{resource}' in")
        return str(Path(folders[0], resource))

    @staticmethod
    def get_distribution(name: str) -> types.SimpleNamespace:
        """An object whose ``version`` is that of the installed distribution ``name``."""
        from importlib.metadata import version

        return types.SimpleNamespace(version=version(name))


def broadcast_without_copies(module: Any) -> None:
    """Broke: ``torch.ByteTensor(memoryview)`` copies a checkpoint byte by byte, 12 s for 194 MB.

    ``torch.frombuffer`` reads the same bytes in place, and one process alone has nobody to send to.
    """
    original = module.broadcast_object
    if "ByteTensor" not in original.__code__.co_names:
        return

    @functools.wraps(original)
    def broadcast_object(obj: Any, src: int = 0, use_disk: bool = True) -> Any:
        import torch

        if module.get_world_size() == 1:
            return obj
        payload = torch.empty(0, dtype=torch.uint8)
        if module.get_rank() == src:
            buffer = io.BytesIO()
            torch.save(obj, buffer)
            payload = torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)
        size = module.broadcast(torch.tensor([payload.numel()]), src=src)
        if module.get_rank() != src:
            payload = torch.empty(int(size), dtype=torch.uint8)
        payload = module.broadcast(payload, src=src)
        if module.get_rank() != src:
            # As in the host: the checkpoint is the user's own, and not weights alone.
            obj = torch.load(
                io.BytesIO(memoryview(payload.numpy())), map_location="cpu", weights_only=False
            )
        return obj

    module.broadcast_object = broadcast_object
    mended("slow checkpoint load")


def data_paths_suffice(module: Any) -> None:
    """Broke: ``DATA_PATHS`` without ``LABEL_PATHS`` raises ``KeyError`` unless in a catalog.

    Where the user names the data, labels come from the data source or not at all, and no catalog is
    asked.
    """
    original: Callable[..., Any] = module.get_data_files

    @functools.wraps(original)
    def get_data_files(split: str, dataset_config: Any) -> Any:
        config = dataset_config[split]
        names = config.DATASET_NAMES
        in_catalog = all(module.VisslDatasetCatalog.has_data(name) for name in names)
        if not config.DATA_PATHS or config.LABEL_PATHS or in_catalog:
            return original(split, dataset_config)
        config.LABEL_PATHS = [""] * len(config.DATA_PATHS)  # the empty path never exists
        try:
            return original(split, dataset_config)
        finally:
            config.LABEL_PATHS = []

    module.get_data_files = get_data_files
    mended("DATA_PATHS without a catalog")


def labels_of_our_sources(module: Any) -> None:
    """Broke: ``load_labels`` raises on every label source but a fixed few, so on a plugin's.

    The host asks a ``torchvision_dataset`` for ``get_labels()``; ours are asked the same way.
    """
    dataset = module.GenericSSLDataset
    original = dataset.load_labels

    def ours(source: str) -> bool:
        return source.startswith("pirl_disk_")

    @functools.wraps(original)
    def load_labels(self: Any) -> None:
        sources = self.label_sources
        asked = [
            "torchvision_dataset" if ours(s) and ours(self.data_sources[i]) else s
            for i, s in enumerate(sources)
        ]
        self.label_sources = asked
        try:
            original(self)
        finally:
            self.label_sources = sources

    dataset.load_labels = load_labels
    mended("labels of plugin data sources")
