"""A map of images for pages: similar images are near each other. ``page.js`` draws it.

van der Maaten and Hinton 2008, "Visualizing Data using t-SNE" (https://jmlr.org/papers/v9).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.utils import make_grid

from pirl_plugin.evaluation.crops import read_crops
from pirl_plugin.evaluation.knn import find_neighbors, unit_rows
from pirl_plugin.evaluation.pictures import PageImages, data_url
from pirl_plugin.images.source import evenly_spaced
from pirl_plugin.system.console import put
from pirl_plugin.system.text import counted

_MOST_IMAGES = 5000
_NEAREST = 20  # images that may vote for a class
_LINKED = 6  # images linked to a selected one
_FEWEST_PAIRS = 6
_MOST_PAIRS = 24
_NEAR = 0.9  # cosine similarity of pairs beyond the fewest
_DIMENSIONS = 50  # principal components for t-SNE
_PERPLEXITY = 30
_SECONDS = 0.005  # of t-SNE per image, on one core
_MOST_SIDE = 112  # of a tile, in pixels
_MOST_PIXELS = 8_000_000  # in all tiles: 40 × 40 for each of 5,000
_QUALITIES = (80, 65, 50, 35, 20)
_MOST_CHARACTERS = 2_300_000  # in the URL of the tiles


@dataclass(frozen=True)
class ImageMap:
    """M images arranged by similarity.

    Attributes:
        numbers: which of a page's N images these are.
        nearest: int64 ``(M, k)``, the most similar others, as indices into the M, in order.
        cosines: float32 ``(M, k)``, their similarities.
        positions: floating ``(M, 2)``, in any unit.
        side: side of a tile, in pixels.
        tiles: ``data:`` URL of one picture with all tiles, row by row.
    """

    numbers: list[int]
    nearest: Tensor
    cosines: Tensor
    positions: NDArray[np.floating]
    side: int
    tiles: str

    def content(self, images: PageImages) -> dict[str, Any]:
        """Return everything but the tiles, as JSON for ``page.js``.

        Args:
            images: the N images, perhaps with predictions.
        """
        x, y = self.positions.T.astype(float).round(2).tolist()
        percent = 100 * images.probability[self.numbers]
        return {
            "side": self.side,
            "x": x,
            "y": y,
            "names": [images.name(number) for number in self.numbers],
            "labels": images.labels[self.numbers].tolist(),
            "predicted": images.predicted[self.numbers].tolist(),
            "percent": percent.round().astype(int).tolist(),
            "nearest": self.nearest[:, :_LINKED].tolist(),
        }

    def near_duplicates(self) -> list[tuple[int, int, float]]:
        """Return the most similar pairs, each pair once: two numbers, and the similarity."""
        similarity: dict[tuple[int, int], float] = {}
        cosines = self.cosines.tolist()
        for first, neighbors in enumerate(self.nearest.tolist()):
            for second, cosine in zip(neighbors, cosines[first], strict=True):
                similarity[min(first, second), max(first, second)] = cosine
        pairs = sorted(similarity.items(), key=lambda pair: -pair[1])
        num_near = sum(cosine >= _NEAR for _, cosine in pairs)
        count = min(max(num_near, _FEWEST_PAIRS), _MOST_PAIRS)
        return [
            (self.numbers[first], self.numbers[second], cosine)
            for (first, second), cosine in pairs[:count]
        ]


def draw_map(images: PageImages, features: Tensor) -> ImageMap:
    """Arrange at most 5,000 images by similarity, and draw their tiles.

    Args:
        images: N images.
        features: floating ``(N, D)``.

    Raises:
        Refused: features are not finite.
    """
    numbers = evenly_spaced(len(images.rows), _MOST_IMAGES)
    count = len(numbers)
    seconds = max(1, round(_SECONDS * count))
    put(f"map of {counted(count, 'image')}: about {seconds} s on one core\n")
    unit = unit_rows(features[numbers].float())
    nearest = torch.zeros(count, 0, dtype=torch.int64)
    cosines = torch.zeros(count, 0)
    if count > 1:
        nearest, cosines = find_neighbors(unit, unit, _NEAREST, leave_one_out=True)
    side = min(_MOST_SIDE, math.isqrt(_MOST_PIXELS // count))
    tiles = _draw_tiles(images, numbers, side)
    return ImageMap(numbers, nearest, cosines, _arrange(unit.numpy()), side, tiles)


def _arrange(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return positions ``(M, 2)`` for features ``(M, D)``, with t-SNE and a fixed seed."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if len(rows) == 1:
        return np.zeros((1, 2))
    # One thread, for the same map in each run; more would only take more CPU time.
    with threadpool_limits(1), np.errstate(invalid="ignore"):  # if all features are equal
        reduced = PCA(min(_DIMENSIONS, *rows.shape), random_state=0).fit_transform(rows)
        perplexity = min(_PERPLEXITY, (len(rows) - 1) / 3)
        start = 1e-3 * reduced[:, :2]  # init="pca" divides by 0 if all features are equal
        tsne = TSNE(init=start, perplexity=perplexity, random_state=0)
        positions: NDArray[np.floating] = tsne.fit_transform(reduced)
    return positions


def _draw_tiles(images: PageImages, numbers: list[int], side: int) -> str:
    """Return the ``data:`` URL of a JPEG with all tiles, small enough for a page."""
    rows = [images.rows[number] for number in numbers]
    columns = math.ceil(math.sqrt(len(rows)))
    crops = read_crops(images.source, side, images.display.reading, rows, "pictures")
    tiles = [images.display.colors(crop) for pixels, _, _ in crops for crop in pixels]
    picture = make_grid(tiles, columns, padding=0)
    url = ""
    for quality in _QUALITIES:
        url = data_url(picture, quality)
        if len(url) <= _MOST_CHARACTERS:
            break
    return url
