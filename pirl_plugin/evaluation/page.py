"""The page for all reports: a self-contained HTML file.

``page.html.j2`` has the text; it shows the sections for which values are given.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pirl_plugin.evaluation.features import center_crop
from pirl_plugin.evaluation.knn import same_class_share
from pirl_plugin.images.source import ImageSource, evenly_spaced
from pirl_plugin.system.files import write_text
from pirl_plugin.views.pixels import as_image, is_rgb

_PICTURE = 112  # side of a small picture in pixels
_NUM_QUERIES = 6
NUM_NEIGHBORS = 6
"""Neighbors shown for each query."""


@dataclass(frozen=True)
class Accuracy:
    """A measured accuracy.

    Attributes:
        name: what was measured, such as a layer.
        percent: top-1, 0 to 100.
        count: number of test images.
        is_reference: whether it is only a comparison, such as an untrained network.
    """

    name: str
    percent: float
    count: int
    is_reference: bool = False

    @property
    def error(self) -> float:
        """Half the width of the 95 % interval, in percent.

        Normal approximation, with two correct and two wrong predictions added, because it would
        otherwise be 0 if all are correct (Agresti and Coull 1998).

        Example:
            >>> round(Accuracy("kNN", 30.0, 400).error, 2)  # 122 of 404: 196 √(0.302 · 0.698 / 404)
            4.48
        """
        count = self.count + 4
        share = (self.percent / 100 * self.count + 2) / count
        return 196 * math.sqrt(share * (1 - share) / count)


@dataclass(frozen=True)
class Chart:
    """Accuracies side by side; the title may be empty."""

    title: str
    accuracies: Sequence[Accuracy]


@dataclass(frozen=True)
class Verdict:
    """A page's first sentence; ``kind`` is good, bad or open."""

    kind: str
    text: str


@dataclass(frozen=True)
class ShownImages:
    """Images in a split, some of which a page shows.

    Attributes:
        source: the images.
        rows: N rows in the source.
        labels: int64 ``(N,)``, indices into ``classes``; −1: unlabeled.
        classes: class names; empty for unlabeled images.
    """

    source: ImageSource
    rows: Sequence[int]
    labels: Tensor
    classes: Sequence[str]

    def picture(self, number: int) -> Picture:
        """Return the picture of one of the N images."""
        pixels, _ = self.source[self.rows[number]]
        labels_and_none = [*self.classes, ""]  # the last entry is for −1
        label = labels_and_none[int(self.labels[number])]
        return Picture(data_address(center_crop(pixels, _PICTURE)), label)


@dataclass(frozen=True)
class Picture:
    """A small picture: its ``data:`` URL, and its class name, which may be empty."""

    image: str
    label: str


@dataclass(frozen=True)
class Query:
    """An image, and its nearest training images by network, nearest first."""

    picture: Picture
    neighbors: Mapping[str, Sequence[Picture]]

    def num_same(self, network: str) -> int:
        """Return the number of neighbors with the query's class."""
        return sum(near.label == self.picture.label for near in self.neighbors[network])


@dataclass(frozen=True)
class Neighbors:
    """Nearest neighbors for some queries.

    Attributes:
        count: number of neighbors per query.
        shares: network → percentage of neighbors with the query's class; empty for unlabeled
            images.
        queries: some queries, the first network's best query first.
    """

    count: int
    shares: Sequence[float]
    queries: Sequence[Query]


def show_neighbors(
    train: ShownImages, queries: ShownImages, nearest: Mapping[str, Tensor]
) -> Neighbors:
    """Choose some queries, and render their neighbors.

    Args:
        train: the images that were searched.
        queries: M images.
        nearest: network → int64 ``(M, n)``, numbers of training images, nearest first.
    """
    first_columns = {network: rows[:, :NUM_NEIGHBORS] for network, rows in nearest.items()}
    with_neighbors = []
    for number in evenly_spaced(len(queries.rows), _NUM_QUERIES):
        neighbors = {
            network: [train.picture(near) for near in rows[number].tolist()]
            for network, rows in first_columns.items()
        }
        with_neighbors.append(Query(queries.picture(number), neighbors))
    shares = []
    if train.classes:
        for rows in first_columns.values():
            shares.append(same_class_share(rows, train.labels, queries.labels))
    first_network = next(iter(nearest))
    by_success = sorted(with_neighbors, key=lambda query: -query.num_same(first_network))
    return Neighbors(first_columns[first_network].shape[1], shares, by_success)


def write_page(path: Path, title: str, **sections: Any) -> None:
    """Write a page with some of these sections, in this order.

    Args:
        path: the HTML file.
        title: page title.
        **sections: the contents, by section:

            - ``introduction``: the first paragraph.
            - ``verdict``: :class:`Verdict`.
            - ``charts``: sequence of :class:`Chart`, and ``chance``: percentage of the most
              frequent class.
            - ``training``: ``plots``, each with a title, epochs and values; ``task``, a sentence;
              and ``samples``, for some images title → ``data:`` URL of the image or a view.
            - ``neighbors``: :class:`Neighbors`.
            - ``confusion``: class → number of test images with each prediction.
            - ``mistakes``: sequence of :class:`Picture`.
            - ``commands``: purpose → command, for the next steps.
            - ``settings``: name → value, a table.
    """
    from jinja2 import Environment, FileSystemLoader  # torch requires jinja2

    loader = FileSystemLoader(Path(__file__).parent)
    pages = Environment(loader=loader, autoescape=True, trim_blocks=True)
    write_text(path, pages.get_template("page.html.j2").render(title=title, **sections))


def data_address(image: Tensor) -> str:
    """Return an image ``(C, H, W)`` as the ``data:`` URL of a PNG.

    Images other than RGB in uint8 show their first three channels, or the first one, each stretched
    from its lowest to its highest value.
    """
    if not is_rgb(image):
        shown = image[: 3 if len(image) > 2 else 1].float()
        low = shown.amin((1, 2), keepdim=True)
        span = (shown.amax((1, 2), keepdim=True) - low).clamp(min=1e-9)
        image = ((shown - low) / span * 255).to(torch.uint8).expand(3, -1, -1)
    stream = io.BytesIO()
    as_image(image).save(stream, "PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
