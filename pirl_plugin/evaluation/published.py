"""The paper's published numbers, from ``published.json``: the one place that has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def published_tables() -> list[dict[str, Any]]:
    """The paper's seven tables: ``number``, ``title``, ``columns`` and ``rows``, in percent."""
    tables: list[dict[str, Any]] = _content()["tables"]
    return tables


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
    parameters: dict[str, float] = _content()["parameters"]
    return parameters


def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(__file__).with_name("published.json").read_text())
    return content
