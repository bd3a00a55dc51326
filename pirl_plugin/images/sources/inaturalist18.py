"""iNaturalist-2018, as it unpacks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pirl_plugin.images.sources.base import ImageSource
from pirl_plugin.images.sources.path_table import PathTable
from pirl_plugin.images.sources.splits import is_train


class INaturalist18Source(ImageSource):
    """Images of iNaturalist-2018, in the order of the annotations, with labels int64 (N,).

    Args:
        path: what the data set unpacks to: ``train2018.json``, ``val2018.json`` and
            ``train_val2018``.
        split: ``train``, or ``test`` for val.
        grey_size: side of the image that takes the place of one that cannot be read, pixels.

    Raises:
        FileNotFoundError: the folder or the annotations are missing.
        ValueError: they are not the data set's, or an image has no label.
    """

    wanted = "the folder that holds train2018.json, val2018.json and train_val2018"

    def __init__(
        self, path: str | os.PathLike[str], split: str = "train", grey_size: int = 224
    ) -> None:
        if not os.path.isdir(path):
            raise FileNotFoundError(self.problem(path, "is not a folder that exists"))
        file = Path(path, "train2018.json" if is_train(split) else "val2018.json")
        if not file.is_file():
            raise FileNotFoundError(self.problem(path, f"has no {file.name}"))
        images, labels = _read_annotations(file)
        super().__init__(path, PathTable(images), labels=labels, grey_size=grey_size)


def _read_annotations(file: Path) -> tuple[list[str], NDArray[np.int64]]:
    try:
        content = json.loads(file.read_text())
        label_of = {entry["image_id"]: entry["category_id"] for entry in content["annotations"]}
        paths = [image["file_name"] for image in content["images"]]
        labels = np.array([label_of[image["id"]] for image in content["images"]], dtype=np.int64)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{file} cannot be read ({type(error).__name__}: {error}); expected iNaturalist-2018's "
            f"'images' and 'annotations'"
        ) from None
    return paths, labels
