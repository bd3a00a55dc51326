"""What today's Python, torch and setuptools broke in VISSL, and the smallest repair of each.

Each function here is a step of :mod:`pirl_plugin.vissl.import_hook.table`. It tests for the
feature it needs rather than for a version, and changes nothing where the host works. It records
what it patched with :func:`patched`, which the log quotes at the start of a run.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import TYPE_CHECKING

from pirl_plugin.images.names import SOURCES
from pirl_plugin.settings import is_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from vissl.config import AttrDict
    from vissl.data.ssl_dataset import GenericSSLDataset

    from pirl_plugin.vissl.host_module import HostModule

PATCHED: list[str] = []
_PIECE = 1 << 25  # bytes broadcast together


def patched(what: str) -> None:
    """Record, once, one patch that was needed in this process."""
    if what not in PATCHED:
        PATCHED.append(what)


def alias_kinetics400(module: types.ModuleType) -> None:
    """Broke: torchvision 0.15 renamed ``Kinetics400`` to ``Kinetics``; Classy Vision imports it."""
    from torchvision.datasets import kinetics

    if not hasattr(kinetics, "Kinetics400"):
        kinetics.Kinetics400 = kinetics.Kinetics
        patched("Kinetics400")


def provide_pkg_resources(module: types.ModuleType) -> None:
    """Broke: setuptools 82 dropped ``pkg_resources``, which two modules of VISSL import.

    Those two alone get a stand-in, while they are imported: the rest of the process goes on
    seeing that there is no ``pkg_resources``.
    """
    if "pkg_resources" in sys.modules or importlib.util.find_spec("pkg_resources") is not None:
        return
    sys.modules["pkg_resources"] = _PkgResources("pkg_resources")
    patched("pkg_resources")


def withdraw_pkg_resources(module: types.ModuleType) -> None:
    """Undo :func:`provide_pkg_resources`; VISSL's modules keep their reference."""
    if isinstance(sys.modules.get("pkg_resources"), _PkgResources):
        del sys.modules["pkg_resources"]


class _PkgResources(types.ModuleType):
    """The two functions of ``pkg_resources`` that VISSL calls."""

    @staticmethod
    def resource_filename(package: str, resource: str) -> str:
        """Path of ``resource`` inside an importable ``package``.

        The package beside the host goes first: VISSL asks for ``configs``, a name that a module
        in the current folder often has too.
        """
        host = importlib.util.find_spec("vissl")
        beside = Path(host.origin).parents[1] / package if host and host.origin else None
        if beside is not None and beside.is_dir():
            return str(beside / resource)
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


def broadcast_without_copies(module: HostModule) -> None:
    """Broke: ``torch.ByteTensor(memoryview)`` copies a checkpoint byte by byte, 12 s for 194 MB.

    It travels in pieces from one temporary file to the others, so that no rank holds it twice, and
    is loaded as the host loads it: by torch's default, which runs no code. One process alone has
    nobody to send to.
    """
    original = module.broadcast_object
    if "ByteTensor" not in original.__code__.co_names:
        return

    @functools.wraps(original)
    def broadcast_object(obj: object, src: int = 0, use_disk: bool = True) -> object:
        import torch

        if module.get_world_size() == 1:
            return obj
        sends = module.get_rank() == src
        with tempfile.TemporaryFile() as file:
            if sends:
                torch.save(obj, file)
            size = int(module.broadcast(torch.tensor([file.tell()]), src=src))
            file.seek(0)
            for start in range(0, size, _PIECE):
                piece = torch.empty(min(_PIECE, size - start), dtype=torch.uint8)
                if sends:
                    file.readinto(piece.numpy())  # type: ignore[arg-type]
                piece = module.broadcast(piece, src=src)
                if not sends:
                    file.write(piece.numpy())
            if not sends:
                file.seek(0)
                obj = torch.load(file, map_location="cpu")
        return obj

    module.broadcast_object = broadcast_object
    patched("slow checkpoint load")


def data_paths_suffice(module: HostModule) -> None:
    """Broke: ``DATA_PATHS`` without ``LABEL_PATHS`` raises ``KeyError`` unless in a catalog.

    Where the user names the data, labels come from the data source or not at all, and no catalog is
    asked.
    """
    original: Callable[..., tuple[list[str], list[str]]] = module.get_data_files

    @functools.wraps(original)
    def get_data_files(split: str, dataset_config: AttrDict) -> tuple[list[str], list[str]]:
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
    patched("DATA_PATHS without a catalog")


def labels_of_our_sources(module: HostModule) -> None:
    """Broke: ``load_labels`` raises on every label source but a fixed few, so on a plugin's.

    The host asks a ``torchvision_dataset`` for ``get_labels()``; ours are asked the same way. And
    it reads files of labels with ``allow_pickle=True``, which runs code in them: a run of ours
    refuses a file that holds any.
    """
    dataset = module.GenericSSLDataset
    original = dataset.load_labels

    def ours(source: str) -> bool:
        return source in SOURCES

    @functools.wraps(original)
    def load_labels(self: GenericSSLDataset) -> None:
        sources = self.label_sources
        if is_ours(self.cfg):
            _refuse_pickles(self.label_paths)
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
    patched("labels of plugin data sources")


def _refuse_pickles(paths: Iterable[str | Sequence[str]]) -> None:
    """Raise ``ValueError`` for a file of labels that is not a plain array of numpy."""
    import numpy as np

    for path in itertools.chain.from_iterable([p] if isinstance(p, str) else p for p in paths):
        if not os.path.isfile(path):  # '' of a source that needs none
            continue
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError):
            array = None
        if not isinstance(array, np.ndarray):
            raise ValueError(
                f"config.DATA: LABEL_PATHS names {path}: expected an array of numbers or text "
                f"without pickled objects, which could run code; save it with numpy.save("
                f"…, allow_pickle=False)"
            )


def go_on_without_nvtx(module: HostModule) -> None:
    """Broke: git main takes ``nvtx`` for installed, and imports it in each step."""
    if hasattr(module, "is_nvtx_available") and importlib.util.find_spec("nvtx") is None:
        module.is_nvtx_available = lambda: False
        patched("nvtx")
