"""Markdown tables, and a report's page and figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

TABLES = "<!-- tables -->"
"""Line of a page below which a script writes; the text above is written by hand."""


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Format a table.

    Example:
        >>> print(markdown_table(["a", "b"], [["1", "x|y"]]))
        | a | b |
        |---|---|
        | 1 | x\|y |
    """
    return "\n".join([markdown_row(header), "|---" * len(header) + "|", *map(markdown_row, rows)])


def markdown_row(cells: Sequence[str]) -> str:
    """Format a row, without the line break."""
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def below_text(file: Path, title: str, tables: str) -> str:
    """Return a page with the text that stands above the tables in ``file``, and new tables.

    Args:
        file: the page; without one, its text is the title.
        title: title of a new page.
        tables: everything below the line ``TABLES``.
    """
    page = file.read_text("utf-8") if file.is_file() else ""
    text = page.partition(TABLES)[0] if TABLES in page else f"# {title}\n\n"
    return f"{text}{TABLES}\n\n{tables}"


def write_files(folder: Path, name: str, page: str, figures: Mapping[str, Figure]) -> None:
    """Write ``NAME.md`` and an SVG for each figure; the same runs give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(page + "\n", "utf-8")
    matplotlib.rcParams["svg.hashsalt"] = "pirl"
    for title, figure in figures.items():
        figure.savefig(folder / f"{title}.svg", metadata={"Date": None})
