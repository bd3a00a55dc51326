"""Search a feature file from ``embed`` for the images nearest to others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pirl_plugin.evaluation.feature_store import (
    Batch,
    FeatureFile,
    describe_images,
    read_progress,
    require_same,
)
from pirl_plugin.evaluation.knn import find_neighbors
from pirl_plugin.images.source import content_stamp
from pirl_plugin.system.failures import Refused

_BLOCK = 4096  # images at a time


class Gallery:
    """Features in a file from ``embed``, to search for nearest images.

    Args:
        path: ``.npz``.
        network: JSON that identifies the network and layer, which must match the file's.

    Attributes:
        identity: JSON that identifies the features.
        readable: bool ``(images,)``, whether each image was readable.
        features: float32 ``(N, D)`` for the N readable images.
        digests: int64 ``(N,)``.
        names: the N images' names.
        paths: the N images' paths, without symbolic links.

    Raises:
        Refused: the file was written by another program, is for another network, or its images
            have changed since.
    """

    def __init__(self, path: Path, network: Mapping[str, Any]) -> None:
        remedy = "Pass a file that embed wrote with the same network and options."
        progress = read_progress(path, remedy)
        self.identity = progress["identity"]
        require_same(path, network, {key: self.identity.get(key) for key in network}, remedy)
        self.readable = torch.ones(progress["done"], dtype=torch.bool)
        self.readable[progress["unreadable"]] = False
        content = np.load(path)
        self.features = torch.from_numpy(content["features"])
        self.digests = content["digests"]
        self.names = content["files"]
        self.paths = content.get("paths", np.array([], np.str_))
        stamps = np.array(list(map(content_stamp, self.paths)), np.str_)
        if len(stamps) != len(self.names) or (stamps != content["stamps"]).any():
            raise Refused(
                f"The images in {path} have changed since it was written, or it does not record "
                f"them. Write it again."
            )

    def fill(self, file: FeatureFile) -> None:
        """Copy the features to an empty file for the same images, instead of computing them."""
        images = describe_images(file.source)
        is_same = all(self.identity.get(key) == value for key, value in images.items())
        if not is_same or len(file.readable) > 0:
            return
        place = self.readable.cumsum(0) - 1  # of each readable image in the gallery
        for rows in torch.arange(len(place)).split(_BLOCK):
            at = place[rows].clamp(min=0)
            digests = torch.from_numpy(self.digests)[at]
            file.append(Batch([self.features[at]], self.readable[rows], digests))

    def find_nearest(
        self, paths: NDArray[np.str_], features: NDArray[np.float32]
    ) -> dict[str, NDArray[Any]]:
        """Return the columns ``nearest`` (a name) and ``similarity`` (the cosine).

        Skips the file's entry for the same image, which has the same path. If there is no other,
        the name is empty and the similarity NaN.

        Args:
            paths: paths of the M images, without symbolic links.
            features: ``(M, D)``.
        """
        count = min(2, len(self.names))
        nearest, cosines = find_neighbors(torch.from_numpy(features), self.features, count)
        rows = nearest.numpy()  # numpy takes a tensor with one number for a number
        is_itself = self.paths[rows[:, 0]] == paths
        choice = is_itself.astype(int) % count
        images = np.arange(len(paths))
        chosen = rows[images, choice]
        has_no_other = self.paths[chosen] == paths  # the file has only this image
        return {
            "nearest": np.where(has_no_other, "", self.names[chosen]),
            "similarity": np.where(has_no_other, np.nan, cosines.numpy()[images, choice]),
        }
