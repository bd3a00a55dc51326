"""Sources by their registered names, or by what lies at a path."""

from __future__ import annotations

import importlib
import inspect
import os
from typing import Any, cast

from pirl_plugin.images.names import DISK_FILELIST, DISK_FOLDER, DISK_SHARDS, SOURCES
from pirl_plugin.images.sources.base import ImageSource
from pirl_plugin.images.sources.shards import INDEX


def source_class(name: str) -> type[ImageSource]:
    """The class of a registered name.

    Raises:
        ValueError: there is no source of this name.
    """
    if name not in SOURCES:
        raise ValueError(
            f"data_source = {name!r}: expected one of {', '.join(SOURCES)}; name one of these"
        )
    module, _, attribute = SOURCES[name].partition(":")
    return cast("type[ImageSource]", getattr(importlib.import_module(module), attribute))


def open_source(name: str, path: str | os.PathLike[str], **options: Any) -> ImageSource:
    """Open a source by its registered name.

    Args:
        name: a key of ``names.SOURCES``.
        path: what the source reads.
        **options: for its constructor; those that it does not take are left out.

    Raises:
        ValueError: there is no source of this name; and what the source raises.
    """
    made = source_class(name)
    taken = inspect.signature(made).parameters
    return made(path, **{key: value for key, value in options.items() if key in taken})


def source_at(path: str | os.PathLike[str], **options: Any) -> ImageSource:
    """Open what lies at a path: a list if it is a file, shards if they have an index, a folder.

    Raises:
        FileNotFoundError: there is neither.
        ValueError: it holds fewer than two images.
    """
    if os.path.isfile(path):
        return open_source(DISK_FILELIST, path, **options)
    shards = os.path.isfile(os.path.join(path, INDEX))
    return open_source(DISK_SHARDS if shards else DISK_FOLDER, path, **options)
