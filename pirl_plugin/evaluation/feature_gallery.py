"""Search a feature file from ``embed`` for the images nearest to others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pirl_plugin.evaluation.feature_store import (
    FeatureFile,
    describe_images,
    read_progress,
    stamps_of,
)
from pirl_plugin.evaluation.knn import find_neighbors
from pirl_plugin.system.failures import Refused


class Gallery:
    """Features in a file from ``embed``, to search for nearest images.

    Args:
        path: ``.npz``.
        network: JSON that identifies the network and layer, which must match the file's.

    Raises:
        Refused: the file was written by another program, is for another network, or its images
            have changed since.
    """

    def __init__(self, path: Path, network: Mapping[str, Any]) -> None:
        remedy = "Pass a file that embed wrote with the same network and options."
        self._identity, self._readable = read_progress(path, network, remedy)
        self._path = path
        self._content = np.load(path)
        self._names = self._content["files"]
        self._paths = self._content.get("paths", np.array([], np.str_))
        is_known = len(self._paths) == len(self._names)
        if not is_known or (stamps_of(self._paths) != self._content["stamps"]).any():
            raise Refused(
                f"The images in {path} have changed since it was written, or it does not record "
                f"them. Write it again."
            )

    def fill(self, file: FeatureFile) -> None:
        """Give the features to an empty file for the same images, instead of computing them."""
        images = describe_images(file.source)
        is_same = all(self._identity.get(key) == value for key, value in images.items())
        if is_same and len(file.readable) == 0:
            file.take(self._path, self._readable)

    def find_nearest(self, paths: NDArray[np.str_], features: Tensor) -> dict[str, NDArray[Any]]:
        """Return the columns ``nearest`` (a name) and ``similarity`` (the cosine).

        Skips the file's entry for the same image, which has the same path. If there is no other,
        the name is empty and the similarity NaN.

        Args:
            paths: paths of the M images, without symbolic links.
            features: ``(M, D)``.
        """
        gallery = torch.from_numpy(self._content["features"])
        nearest, cosines = find_neighbors(features, gallery, k=2)
        is_other = torch.from_numpy(self._paths[nearest.numpy()] != paths[:, None])  # (M, 1 or 2)
        column = is_other.int().argmax(dim=1, keepdim=True)
        row = nearest.gather(1, column)[:, 0].numpy()
        cosine = cosines.gather(1, column)[:, 0].numpy()
        has_other = is_other.any(dim=1).numpy()  # otherwise the file has only this image
        return {
            "nearest": np.where(has_other, self._names[row], ""),
            "similarity": np.where(has_other, cosine, np.nan),
        }
