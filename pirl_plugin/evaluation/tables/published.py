"""The paper's published numbers, from ``published.json``: the one place that has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

LAYERS = ("conv1", "res2", "res3", "res4", "res5")
"""Layers of a ResNet that the paper probes (its Table 7, Fig. 5), from the first to the last."""


class PublishedTable(TypedDict):
    """A table of the paper; a row has a figure for each column, percent, or None."""

    number: int
    title: str
    columns: list[str]
    rows: dict[str, list[float | None]]


class _Published(TypedDict):
    tables: list[PublishedTable]
    parameters: dict[str, float]


def published_tables() -> list[PublishedTable]:
    """The paper's seven tables: ``number``, ``title``, ``columns`` and ``rows``, in percent."""
    return _content()["tables"]


def published(number: int, method: str) -> dict[str, float | None]:
    """Column → figure of a row of a table, percent.

    Example:
        >>> published(1, "PIRL")
        {'AP': 54.0, 'AP50': 80.7, 'AP75': 59.7}
    """
    (table,) = [table for table in published_tables() if table["number"] == number]
    return dict(zip(table["columns"], table["rows"][method], strict=True))


def published_parameters() -> dict[str, float]:
    """Row of Table 2 → parameters of its network, millions (Fig. 2)."""
    return _content()["parameters"]


def _content() -> _Published:
    content: _Published = json.loads(Path(__file__).with_name("published.json").read_text())
    return content
