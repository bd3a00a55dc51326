"""Search a feature file from ``embed`` for the images nearest to others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pirl_plugin.evaluation.feature_store import read_features
from pirl_plugin.evaluation.knn import find_neighbors
from pirl_plugin.images.source import ImageSource, content_stamp
from pirl_plugin.system.failures import Refused


class Gallery:
    """Features in a file from ``embed``, to search for nearest images.

    Args:
        path: ``.npz``.
        network: JSON that identifies the network and layer, which must match the file's.

    Attributes:
        identity: JSON that identifies the features.
        computed: the features.

    Raises:
        Refused: the file was written by another program, is for another network, or its images
            have changed since.
    """

    def __init__(self, path: Path, network: Mapping[str, Any]) -> None:
        remedy = "Pass a file that embed wrote with the same network and options."
        self.identity, self.computed = read_features(path, network, remedy)
        with np.load(path) as content:
            self._names = content["files"]
            self._paths = content["paths"]
            stamps = content["stamps"]
        if (stamps_of(self._paths) != stamps).any():
            raise Refused(f"The images in {path} have changed since. Write it again.")

    def find_nearest(self, paths: NDArray[np.str_], features: Tensor) -> dict[str, NDArray[Any]]:
        """Return the columns ``nearest`` (a name) and ``similarity`` (the cosine).

        Skips the file's entry for the same image, which has the same path. If there is no other,
        the name is empty and the similarity NaN.

        Args:
            paths: paths of the M images, without symbolic links.
            features: ``(M, D)``.
        """
        nearest, cosines = find_neighbors(features, self.computed.features[0], k=2)
        rows = nearest.numpy()
        is_other = self._paths[rows] != paths[:, None]  # (M, 1 or 2)
        first = (np.arange(len(rows)), is_other.argmax(axis=1))
        has_other = is_other.any(axis=1)  # otherwise the file has only this image
        return {
            "nearest": np.where(has_other, self._names[rows[first]], ""),
            "similarity": np.where(has_other, cosines.numpy()[first], np.nan),
        }


def real_paths(source: ImageSource, rows: Iterable[int]) -> NDArray[np.str_]:
    """Return images' paths, without symbolic links, ``(N,)``."""
    return np.array([os.path.realpath(source.path_of(row)) for row in rows], np.str_)


def stamps_of(paths: Iterable[str]) -> NDArray[np.str_]:
    """Return the files' sizes and times, ``(N,)``."""
    return np.array([content_stamp(path) for path in paths], np.str_)
