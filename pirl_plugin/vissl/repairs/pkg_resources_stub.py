"""The package ``pkg_resources``, which two modules of VISSL import."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
import types
from pathlib import Path


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
