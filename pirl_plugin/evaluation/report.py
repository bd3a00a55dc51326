"""A small report of a checkpoint's accuracy; ``report.html.j2`` has the text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pirl_plugin.evaluation.page import write_page


@dataclass(frozen=True)
class Accuracy:
    """A measured accuracy.

    Attributes:
        name: what was measured, such as a layer.
        percent: top-1, 0 to 100.
        count: number of test images.
        is_reference: whether it is only for comparison, such as an untrained network.
    """

    name: str
    percent: float
    count: int
    is_reference: bool = False

    @property
    def error(self) -> float:
        """Half of the 95 % interval, percent, by the normal approximation.

        Example:
            >>> round(Accuracy("kNN", 30.0, 400).error, 2)  # 196 √(0.3 · 0.7 / 400)
            4.49
        """
        share = self.percent / 100
        return 196 * math.sqrt(share * (1 - share) / self.count)


@dataclass(frozen=True)
class Picture:
    """A small picture and its class.

    Attributes:
        image: its ``data:`` address, of :func:`~pirl_plugin.evaluation.page.small_picture`.
        label: name of the class.
    """

    image: str
    label: str


@dataclass(frozen=True)
class Query:
    """A test image and its nearest training images, the nearest first."""

    query: Picture
    neighbors: list[Picture] = field(default_factory=list)

    @property
    def num_same(self) -> int:
        """Number of neighbours with the class of the query."""
        return sum(neighbor.label == self.query.label for neighbor in self.neighbors)


def write_report(
    path: Path,
    title: str,
    accuracies: Sequence[Accuracy],
    chance: float,
    settings: Mapping[str, object],
    queries: Sequence[Query] = (),
    same_class: float | None = None,
) -> None:
    """Write the report.

    Args:
        path: the HTML file.
        title: of the page.
        accuracies: at least one.
        chance: share of the most frequent class, percent.
        settings: name → value, for the table at the end.
        queries: some test images with their nearest neighbours.
        same_class: how many such neighbours of all test images have their class, percent.
    """
    # The query with the most neighbours of its class comes first.
    by_success = sorted(queries, key=lambda query: -query.num_same)
    write_page(
        path,
        Path(__file__).with_name("report.html.j2"),
        title=title,
        accuracies=accuracies,
        chance=chance,
        settings=settings,
        queries=by_success,
        same_class=same_class,
    )
