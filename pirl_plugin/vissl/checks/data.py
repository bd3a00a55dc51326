"""Checks of data before a run: what is not there, or does not fit, is named in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pirl_plugin.vissl.catalog import LAYOUT
from pirl_plugin.vissl.checks.refusal import refuse, refuse_tilde
from pirl_plugin.vissl.checks.sources import splits_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vissl.config import AttrDict

_HOSTS_DISK = ("disk_folder", "disk_filelist")  # data sources that read what a path names


def check_data(config: AttrDict) -> None:
    """Refuse, in one sentence and before any process is started, data that cannot be trained on.

    Raises:
        SystemExit: what was found, what was expected and what to do.
    """
    from vissl.data.dataset_catalog import VisslDatasetCatalog, get_data_files

    from pirl_plugin.images.names import SOURCES
    from pirl_plugin.vissl.adapters.source import check_source

    for split in splits_of(config):
        data = config.DATA[split]
        sources = data.DATA_SOURCES
        if not any(s in _HOSTS_DISK or s in SOURCES for s in sources):
            continue
        unknown = [n for n in data.DATASET_NAMES if not VisslDatasetCatalog.has_data(n)]
        if not data.DATA_PATHS and unknown:
            catalog = ""
            if unknown[0] in LAYOUT:
                catalog = ", or all data sets at once, with PIRL_DATASETS=DIR in the environment"
            refuse(
                f"config.DATA.{split}.DATA_PATHS = []: expected a path, as no catalog lists "
                f"'{unknown[0]}'; name a folder of images, "
                f"config.DATA.{split}.DATA_PATHS=[DIR]{catalog}"
            )
        paths, _ = get_data_files(split, config.DATA)
        _check_named(split, data, paths)
        for source, path in zip(data.DATA_SOURCES, paths, strict=True):
            if source not in SOURCES:
                continue
            refuse_tilde(f"config.DATA.{split}.DATA_PATHS", path)
            try:
                check_source(config, source, path, split)
            except (OSError, ValueError) as error:
                refuse(str(error), error)


def _check_named(split: str, data: AttrDict, paths: Sequence[object]) -> None:
    """Refuse files that the host's own sources miss only when all is set up, or never miss."""
    from iopath.common.file_io import g_pathmgr

    key = f"config.DATA.{split}.DATA_PATHS" if data.DATA_PATHS else "the catalog of data sets"
    labels = f"config.DATA.{split}.LABEL_PATHS"
    named = [(key, *pair) for pair in zip(data.DATA_SOURCES, paths, strict=True)]
    named += [(labels, *pair) for pair in zip(data.LABEL_SOURCES, data.LABEL_PATHS, strict=False)]
    for where, source, path in named:
        if source in _HOSTS_DISK and isinstance(path, str) and not g_pathmgr.exists(path):
            refuse(
                f"{where} names '{path}', which is not a file or folder that exists: expected "
                f"one; name another"
            )
