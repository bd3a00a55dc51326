"""Open an image source: a folder, a list, tars, or a data set from any library."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from torch.utils.data import ConcatDataset, Subset

from pirl_plugin.images.columns import BY_NAME, Columns, Entry
from pirl_plugin.images.decode import advice_on
from pirl_plugin.images.filelist import FileListSource
from pirl_plugin.images.folders import (
    IMAGE_EXTENSIONS,
    FolderSource,
    class_folders,
    find_images,
    opening,
)
from pirl_plugin.images.hugging_face import (
    SAVED_SPLITS,
    STATE,
    HuggingFaceFiles,
    HuggingFaceSource,
    is_hugging_face,
)
from pirl_plugin.images.joined import JoinedSource
from pirl_plugin.images.map_source import MapSource
from pirl_plugin.images.names import (
    DISK_FILELIST,
    DISK_FOLDER,
    DISK_HF,
    DISK_INATURALIST18,
    DISK_SHARDS,
    DISK_VOC07,
    LISTS,
    SOURCES,
    TABLES,
)
from pirl_plugin.images.paper_datasets import INaturalist18Source, VOC07Source
from pirl_plugin.images.shards import ShardSource
from pirl_plugin.images.source import ImageSource
from pirl_plugin.system.console import warn_once
from pirl_plugin.system.failures import Refused

_METADATA = ("metadata.jsonl", "metadata.csv")  # as in the package ``datasets``


def open_source(images: Any, *, columns: Columns = BY_NAME) -> ImageSource:
    """Open images in any format.

    The format follows from a path's suffix or, for a folder, from a file that only this format has.

    Args:
        images: a folder (with images, with tars, or saved by Hugging Face), a file that lists
            images, Parquet files (one, or a pattern), a list of images, a map-style data
            set, or a source.
        columns: columns in tables and data sets, or a pattern for a folder.

    Raises:
        FileNotFoundError: the path does not exist.
        ValueError: there are no images, or a pattern is used without a folder.
    """
    is_path = isinstance(images, (str, os.PathLike))
    if columns.pattern is not None and not is_path:
        raise Refused("`pattern` needs a single folder, because it reads relative paths.")
    if isinstance(images, ImageSource):
        return images
    own_source = getattr(images, "source", None)
    if isinstance(own_source, ImageSource):  # from an ImageDataset, whose items are views
        return own_source
    # Not isinstance, because a subclass may change the items.
    if type(images) is Subset:
        parts = [open_source(images.dataset, columns=columns)]
        return JoinedSource("Subset", parts, images.indices)
    if type(images) is ConcatDataset:
        parts = [open_source(part, columns=columns) for part in images.datasets]
        return JoinedSource("ConcatDataset", parts)
    if isinstance(images, (list, tuple)) and images and isinstance(images[0], (str, os.PathLike)):
        return _source_of_paths(images)
    if not is_path:
        source = HuggingFaceSource if is_hugging_face(images) else MapSource
        return source(images, columns)
    path = os.path.expanduser(images)
    if columns.pattern is not None:
        return FolderSource(path, pattern=columns.pattern)
    with opening(path):
        if os.path.isfile(path) and path.lower().endswith(IMAGE_EXTENSIONS):
            return _source_of_paths([path])
        name, path = _infer_source(path)
    return open_named(name, path, columns=columns)


def open_named(
    name: str,
    path: str,
    *,
    split: str = "train",
    remove_prefix: str = "",
    new_prefix: str = "",
    columns: Columns = BY_NAME,
) -> ImageSource:
    """Open a data source by its name in a configuration.

    Args:
        name: one of ``names.SOURCES``.
        path: a folder or file.
        split: ``train`` or ``test``, for VOC07 and iNaturalist.
        remove_prefix: for a list, a prefix of the paths, which ``new_prefix`` replaces.
        new_prefix: for a list, the new prefix for all paths.
        columns: columns in tables and data sets, or a pattern for a folder.

    Raises:
        FileNotFoundError: the path does not exist.
        ValueError: the name is unknown, or there are no images, or a pattern is used without a
            folder.
    """
    path = os.path.expanduser(path)
    has_columns = name in (DISK_HF, DISK_SHARDS) or path.lower().endswith(TABLES)
    if columns.pattern is not None:
        if name != DISK_FOLDER:
            raise Refused(f"`pattern` reads paths below a folder, but {path} is not a folder.")
    elif columns != BY_NAME and not has_columns:
        warn_once(f"{path} has no columns, so the chosen columns are not used.")
        columns = BY_NAME
    if name == DISK_FOLDER:
        return FolderSource(path, pattern=columns.pattern)
    if name == DISK_FILELIST:
        return FileListSource(path, remove_prefix, new_prefix, columns)
    if name == DISK_SHARDS:
        return ShardSource(path, columns)
    if name == DISK_HF:
        return HuggingFaceFiles(path, columns)
    if name == DISK_VOC07:
        return VOC07Source(path, split)
    if name == DISK_INATURALIST18:
        return INaturalist18Source(path, split)
    raise Refused(f"data source {name!r}: expected one of {', '.join(SOURCES)}")


def _source_of_paths(paths: Iterable[str | os.PathLike[str]]) -> ImageSource:
    """Open a list of images."""
    return ImageSource("the list", (Entry(os.fspath(path)) for path in paths), root="")


def _infer_source(path: str) -> tuple[str, str]:
    """Return the name of the source that fits a path, and the path."""
    ending = path.lower()
    if os.path.isdir(path):
        names = os.listdir(path)
        if STATE in names or SAVED_SPLITS in names:
            return DISK_HF, path
        for list_name in _METADATA:
            if list_name in names and len(class_folders(path)) < 2:
                return DISK_FILELIST, os.path.join(path, list_name)
        # A tar beside images, for example with masks, does not determine the format.
        if any(name.lower().endswith(".tar") for name in names) and not any(find_images(path)):
            return DISK_SHARDS, path
    elif ending.endswith(".tar"):
        return DISK_SHARDS, path
    elif ending.endswith((".arrow", ".parquet")):
        return DISK_HF, path
    elif ending.endswith(LISTS):
        return DISK_FILELIST, path
    elif os.path.exists(path):
        raise Refused(
            f"{path} is not an image, a folder, a .parquet file or an image list "
            f"({', '.join(LISTS)}){advice_on([os.path.splitext(ending)[1]])}."
        )
    return DISK_FOLDER, path  # which reports if nothing exists
