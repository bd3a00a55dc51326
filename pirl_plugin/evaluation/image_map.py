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

from pirl_plugin.evaluation.features import Crops, read_crops
from pirl_plugin.evaluation.knn import find_neighbors, unit_rows
from pirl_plugin.evaluation.pictures import Group, PictureSection, ShownImages, data_url
from pirl_plugin.evaluation.predictions import Predictions
from pirl_plugin.images.source import evenly_spaced
from pirl_plugin.system.console import put
from pirl_plugin.system.text import counted, printable

_MOST_IMAGES = 5000
_FEWEST_PAIRS = 6
_MOST_PAIRS = 24
_NEAR = 0.9  # cosine similarity of pairs beyond the fewest
_LINKED = 6  # nearest images linked to a selected one
_DIMENSIONS = 50  # principal components for t-SNE
_PERPLEXITY = 30
_SECONDS = 0.005  # of t-SNE per image, on one core
_GRID = 9999  # positions are whole numbers up to this
_SIDES = (112, 96, 80, 64, 56, 48, 40)  # of a tile, in pixels
_MOST_PIXELS = 8_000_000  # in all tiles: 40 × 40 for each of 5,000
_QUALITIES = (80, 65, 50, 35, 20)
_MOST_CHARACTERS = 2_300_000  # in the URL of the tiles


@dataclass(frozen=True)
class MappedImages:
    """The images on a map, with the nearest others.

    Attributes:
        shown: N images.
        numbers: M numbers among them, evenly spaced.
        features: floating ``(M, D)``.
        nearest: int64 ``(M, k)``, the nearest others among the M, nearest first.
        cosines: float32 ``(M, k)``.
    """

    shown: ShownImages
    numbers: list[int]
    features: Tensor
    nearest: Tensor
    cosines: Tensor


def take_images(shown: ShownImages, features: Tensor, k: int = _LINKED) -> MappedImages:
    """Take at most 5,000 images for a map, and find the nearest others.

    Args:
        shown: N images.
        features: floating ``(N, D)``.
        k: number of nearest images.

    Raises:
        Refused: features are not finite.
    """
    numbers = evenly_spaced(len(shown.rows), _MOST_IMAGES)
    taken = features[numbers].float()
    nearest = torch.zeros(len(taken), 0, dtype=torch.int64)
    cosines = torch.zeros(len(taken), 0)
    if len(taken) > 1:
        nearest, cosines = find_neighbors(taken, taken, k, leave_one_out=True)
    return MappedImages(shown, numbers, taken, nearest, cosines)


@dataclass(frozen=True)
class ImageMap:
    """A map for a page.

    Attributes:
        num_images: number of images from which the map's images were taken.
        tiles: ``data:`` URL of one picture with a tile for each image, row by row.
        content: everything else, as JSON for ``page.js``.
    """

    num_images: int
    tiles: str
    content: dict[str, Any]


def draw_map(mapped: MappedImages, predictions: Predictions | None = None) -> ImageMap:
    """Arrange images by similarity, and draw their tiles.

    Args:
        mapped: M images.
        predictions: their predicted classes; None if there are none.
    """
    shown = mapped.shown
    numbers = mapped.numbers
    seconds = max(1, round(_SECONDS * len(numbers)))
    put(f"map of {counted(len(numbers), 'image')}: about {seconds} s on one core\n")
    side = max((side for side in _SIDES if side**2 * len(numbers) <= _MOST_PIXELS), default=40)
    x, y = _arrange(mapped.features).T.tolist()
    labels = [shown.label(number) for number in numbers]
    predicted = {} if predictions is None else predictions.of_number
    names = [*map(printable, shown.classes), *sorted({name for name, _ in predicted.values()})]
    classes = [*dict.fromkeys(names)]
    number_of = {name: number for number, name in enumerate(classes)}
    content = {
        "side": side,
        "x": x,
        "y": y,
        "names": [shown.name(number) for number in numbers],
        "classes": classes,
        "labels": [number_of.get(label, -1) for label in labels],
        "nearest": mapped.nearest[:, :_LINKED].tolist(),
        "predicted": [],
        "percent": [],
    }
    for number in numbers if predicted else []:
        name, probability = predicted.get(number, ("", 0.0))
        content["predicted"].append(number_of.get(name, -1))
        content["percent"].append(round(100 * probability))
    return ImageMap(len(shown.rows), _draw_tiles(mapped, side), content)


def _arrange(features: Tensor) -> NDArray[np.int64]:
    """Return positions ``(M, 2)``, whole numbers from 0 to 9,999, with t-SNE and a fixed seed."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    rows = unit_rows(features).numpy()
    count, width = rows.shape
    positions = np.zeros((count, 2))
    if count > 2:
        # One thread, for equal maps in each run; more would only take more processor time.
        with threadpool_limits(1), np.errstate(invalid="ignore"):  # if all features are equal
            components = min(_DIMENSIONS, count, width)
            reduced = PCA(components, random_state=0).fit_transform(rows)
            start = np.zeros((count, 2), np.float32)
            start[:, : min(2, components)] = reduced[:, :2]
            start *= 1e-4 / max(start[:, 0].std(), 1e-12)  # as in scikit-learn's init="pca"
            perplexity = min(_PERPLEXITY, (count - 1) / 3)
            tsne = TSNE(init=start, perplexity=perplexity, random_state=0)
            positions = tsne.fit_transform(reduced)
    else:
        positions[:, 0] = np.arange(count)
    positions = positions - positions.min(axis=0)
    extent = positions.max(axis=0)
    positions += (extent.max() - extent) / 2  # the map is square
    return np.rint(_GRID * positions / max(extent.max(), 1e-12)).astype(np.int64)


def _draw_tiles(mapped: MappedImages, side: int) -> str:
    """Return the ``data:`` URL of a JPEG with all tiles, small enough for a page."""
    shown = mapped.shown
    source_rows = [shown.rows[number] for number in mapped.numbers]
    columns = math.ceil(math.sqrt(len(source_rows)))
    rows = math.ceil(len(source_rows) / columns)
    tiles = torch.zeros(3, rows * side, columns * side, dtype=torch.uint8)
    crops = Crops(shown.source, side, shown.display.reading)
    number = 0
    for pixels, _, _ in read_crops(crops, source_rows, "pictures"):
        for crop in pixels:
            top = number // columns * side
            left = number % columns * side
            tiles[:, top : top + side, left : left + side] = shown.display.colors(crop)
            number += 1
    url = ""
    for quality in _QUALITIES:
        url = data_url(tiles, quality)
        if len(url) <= _MOST_CHARACTERS:
            break
    return url


def near_duplicates(mapped: MappedImages, digests: Tensor | None = None) -> PictureSection:
    """Return the most similar pairs, each pair once.

    Args:
        mapped: M images.
        digests: int64 ``(N,)``, equal for images with equal pixels; None if they are unknown.
    """
    shown = mapped.shown
    pairs = {}
    for first, (others, cosines) in enumerate(
        zip(mapped.nearest.tolist(), mapped.cosines.tolist(), strict=True)
    ):
        for second, cosine in zip(others, cosines, strict=True):
            pairs[min(first, second), max(first, second)] = cosine
    closest = sorted(pairs, key=lambda pair: -pairs[pair])
    groups = []
    for place, pair in enumerate(closest[:_MOST_PAIRS]):
        if place >= _FEWEST_PAIRS and pairs[pair] < _NEAR:
            break
        numbers = [mapped.numbers[number] for number in pair]
        title = f"similarity {pairs[pair]:.3f}"
        if digests is not None and digests[numbers[0]] == digests[numbers[1]]:
            title = "equal pixels"
        groups.append(Group(title, [shown.picture(number) for number in numbers]))
    text = (
        f"The most similar pairs of images, by the cosine similarity of their features: at least "
        f"{_FEWEST_PAIRS} pairs, and up to {_MOST_PAIRS} with a similarity of {_NEAR} or more."
    )
    return PictureSection("Near duplicates", text, groups)
