"""The page for all reports: a self-contained HTML file.

``page.html.j2`` has the text; it shows the sections for which values are given. ``page.css`` and
``page.js`` become parts of the file.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from pirl_plugin.evaluation.knn import same_class_share
from pirl_plugin.evaluation.pictures import Picture, ShownImages
from pirl_plugin.images.source import evenly_spaced
from pirl_plugin.system.files import write_text

_NUM_QUERIES = 2
NUM_NEIGHBORS = 6
"""Neighbors shown for each query."""
# Nothing is loaded, and only the page's own script runs, whatever a file's name is.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'"


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
    """A page's first sentence, its result; ``kind`` is good, bad or open."""

    kind: str
    text: str


@dataclass(frozen=True)
class Query:
    """An image, and its nearest images by network, nearest first."""

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
        queries: some queries.
    """

    count: int
    shares: Sequence[float]
    queries: Sequence[Query]


def show_neighbors(
    shown: ShownImages, queries: Sequence[int], nearest: Mapping[str, Tensor]
) -> Neighbors:
    """Choose some queries, and render their neighbors.

    Args:
        shown: N images.
        queries: M numbers among them.
        nearest: network → int64 ``(M, n)``, numbers of the nearest images, nearest first.
    """
    first_columns = {network: near[:, :NUM_NEIGHBORS] for network, near in nearest.items()}
    with_neighbors = []
    for row in evenly_spaced(len(queries), _NUM_QUERIES):
        neighbors = {
            network: [shown.picture(number) for number in near[row].tolist()]
            for network, near in first_columns.items()
        }
        with_neighbors.append(Query(shown.picture(queries[row]), neighbors))
    shares = []
    if shown.classes:
        query_labels = shown.labels[list(queries)]
        for near in first_columns.values():
            shares.append(same_class_share(near, shown.labels, query_labels))
    count = next(iter(first_columns.values())).shape[1]
    return Neighbors(count, shares, with_neighbors)


def write_page(path: Path, title: str, **sections: Any) -> None:
    """Write a page with some of these sections, in this order.

    Args:
        path: the HTML file.
        title: page title.
        **sections: the contents, by section:

            - ``verdict``: :class:`Verdict`, the result.
            - ``introduction``: a paragraph.
            - ``colors``: a sentence about the pictures' colors.
            - ``charts``: sequence of :class:`Chart`, and ``chance``, from
              :func:`~pirl_plugin.evaluation.knn.chance_top1`.
            - ``training``: ``plots``, each with a title, epochs and values; ``task``, a sentence;
              and ``samples``, for some images title → ``data:`` URL of the image or a view.
            - ``map``: :class:`~pirl_plugin.evaluation.image_map.ImageMap`.
            - ``neighbors``: :class:`Neighbors`.
            - ``confusion``: class → number of test images with each prediction.
            - ``pictures``: sequence of :class:`~pirl_plugin.evaluation.pictures.PictureSection`.
            - ``commands``: purpose → command, for the next steps.
            - ``settings``: name → value, a table.
    """
    from jinja2 import Environment, FileSystemLoader  # torch requires jinja2

    folder = Path(__file__).parent
    script = (folder / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    pages = Environment(loader=FileSystemLoader(folder), autoescape=True, trim_blocks=True)
    html = pages.get_template("page.html.j2").render(
        title=title,
        policy=f"{_POLICY}; script-src 'sha256-{digest}'",
        style=(folder / "page.css").read_text(encoding="utf-8"),
        script=script,
        **sections,
    )
    write_text(path, html)
