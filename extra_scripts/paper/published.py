"""The paper's published numbers, from ``published.json``; no other file has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LAYERS = ("conv1", "res2", "res3", "res4", "res5")
"""ResNet layers in the paper's linear benchmark (Table 7, Fig. 5), from first to last."""

DETECTION_ROWS: dict[str, tuple[int, tuple[str, ...]]] = {
    "voc07_pirl": (6, ("PIRL",)),
    "voc0712_pirl": (1, ("PIRL", "NPID++")),
    "voc07_supervised_jigsaw": (6, ("Supervised", "Jigsaw")),
    "voc0712_supervised_jigsaw": (1, ("Supervised", "Jigsaw", "Rotation")),
    "voc0712_moco24k": (1, ("MoCo (BatchNorm fine-tuned)",)),
}
"""Detection config -> table number, and the rows with this schedule."""


def published_tables() -> list[dict[str, Any]]:
    """Return the paper's seven tables.

    Each has ``number``, ``title``, ``columns`` and ``rows``: row name → a figure in percent, or
    None, for each column.
    """
    tables: list[dict[str, Any]] = _content()["tables"]
    return tables


def published_parameters() -> dict[str, float]:
    """Return the methods in Fig. 2: row in Table 2 → parameters in millions.

    Example:
        >>> published_parameters()["PIRL"]
        25.6
    """
    parameters: dict[str, float] = _content()["parameters"]
    return parameters


def published(number: int, method: str) -> dict[str, float | None]:
    """Return a table row: column → figure in percent.

    Example:
        >>> published(1, "PIRL")
        {'AP': 54.0, 'AP50': 80.7, 'AP75': 59.7}
    """
    (table,) = [table for table in published_tables() if table["number"] == number]
    return dict(zip(table["columns"], table["rows"][method], strict=True))


def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(__file__).with_name("published.json").read_text())
    return content
