"""Images of a folder; their classes are its subfolders."""

from __future__ import annotations

import logging
import os
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.images.formats import describe_others, describe_skipped
from pirl_plugin.images.sources.base import ImageSource
from pirl_plugin.images.sources.path_table import PathTable
from pirl_plugin.images.sources.paths import class_folders, find_images

_SPLITS = frozenset({"train", "val", "validation", "test"})
_log = logging.getLogger(__name__)


class FolderSource(ImageSource):
    """The images below a folder, in subfolders or not.

    Files that are not read are counted by kind in the log, with what to do about them.

    Args:
        path: the folder.
        grey_size: side of the image that takes the place of one that cannot be read, pixels.

    Raises:
        FileNotFoundError: there is no such folder, or a file in its place.
        ValueError: it holds fewer than two images.
    """

    wanted = "a folder of images (.jpg, .jpeg, .png, .webp, …), in subfolders or not"

    def __init__(self, path: str | os.PathLike[str], grey_size: int = 224) -> None:
        if os.path.isfile(path):
            raise FileNotFoundError(f"{os.fspath(path)} is a file: expected a folder of images")
        if not os.path.isdir(path):
            raise FileNotFoundError(self.problem(path, "is not a folder that exists"))
        if _SPLITS >= (names := {*class_folders(os.fspath(path))}) and len(names) > 1:
            _log.warning(
                f"{os.fspath(path)}: its subfolders are {' and '.join(sorted(names))}, and images "
                f"of both are read, as of two classes; for one of them name that folder"
            )
        skipped: Counter[str] = Counter()
        images = PathTable(find_images(os.fspath(path), skipped))
        sentences = describe_skipped(skipped)
        for sentence in sentences:
            _log.warning(f"{os.fspath(path)}: {sentence}")
        if others := describe_others(skipped):
            _log.info(f"{os.fspath(path)}: {others}")
        try:
            super().__init__(path, images, grey_size=grey_size)
        except ValueError as error:
            if skipped[".tar"]:
                sentences = ["for its tars, the source is pirl_disk_shards, or ShardSource"]
            raise ValueError("; ".join([str(error), *sentences])) from None

    def labels(self) -> NDArray[np.int64]:
        """Index of each image's first-level subfolder, by name: int64 (N,).

        Images that lie in the folder itself are class 0; beside the folders of classes they have
        none, -1.
        """
        tops = (
            head if tail else ""
            for head, _, tail in (path.partition(os.sep) for path in self._images)
        )
        index = {name: label for label, name in enumerate(class_folders(self.path))}
        index[""] = -1 if index else 0
        return np.fromiter((index[top] for top in tops), np.int64, len(self))

    def class_root(self) -> str:
        """The folder itself."""
        return self.path
