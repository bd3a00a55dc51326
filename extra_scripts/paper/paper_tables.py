"""The paper's tables, with finished runs beside the published figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from published import published_tables

from pirl_plugin.system.comparison import format_differences


@dataclass(frozen=True)
class Run:
    """A finished run's figures, and its place in the paper's tables.

    Attributes:
        path: the run's folder.
        row: the nearest row in the paper's tables.
        figures: column → percent; a layer's column is "ImageNet res5".
        layer: the best among several layers.
        differs: key → the run's value and the row's. It is empty if the run fills the row.
        unknown: descriptions of what could not be compared.
        table: table number; None: all tables with this row and these columns.
        classes: split → digest of the labels, in the images' order, if known.
    """

    path: Path
    row: str
    figures: dict[str, float]
    layer: str | None = None
    differs: Mapping[str, tuple[object, object]] = field(default_factory=dict)
    unknown: Sequence[str] = ()
    table: int | None = None
    classes: Mapping[str, str] = field(default_factory=dict)

    @property
    def tables(self) -> tuple[int, ...]:
        """Numbers of the tables with the row and columns, or of the first one with the columns."""
        if self.table is not None:
            return (self.table,)
        with_columns = [t for t in published_tables() if set(self.figures) & set(t["columns"])]
        with_row = [t["number"] for t in with_columns if self.row in t["rows"]]
        return tuple(with_row or [with_columns[0]["number"]])

    @property
    def label(self) -> str:
        """The run's name and three of its differences, if it does not fill the row."""
        is_row = any(self.row in table["rows"] for table in published_tables())
        name = f"{self.path.name}, not {self.row}" if is_row else self.path.name
        return f"{name}: {format_differences(dict(self.differs), '{key} {value} ({expected})')}"


def lay_out(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Arrange runs in the paper's seven tables.

    Returns:
        For each table ``number``, ``title``, ``columns`` and ``rows``. A row has a ``method``,
        ``differs`` (key → values in run and row), and for a run in a separate row ``nearest``, the
        row that it resembles. For each column, it has ``published`` and ``measured`` (a number or
        None, the mean over several runs), ``spread`` (standard deviation) and ``runs`` (folder,
        best layer, and what could not be compared).
    """
    return [{**table, "rows": _rows(table, runs)} for table in published_tables()]


def _rows(table: Mapping[str, Any], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return a table's published rows, then the runs that fill none of them."""
    columns: list[str] = table["columns"]
    filled: dict[str, list[Run]] = {method: [] for method in table["rows"]}
    with_other_settings: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if table["number"] not in run.tables or not set(columns) & set(run.figures):
            continue
        if run.row in filled and not run.differs:
            run = _beside(filled[run.row], run)
        if run.row in filled and not run.differs:
            filled[run.row].append(run)
        else:  # runs with equal differences are repetitions
            with_other_settings.setdefault((run.row, str(run.differs)), []).append(run)
    rows = [_row(method, table["rows"][method], columns, filled[method]) for method in filled]
    for (nearest, _), group in with_other_settings.items():
        row = _row(group[0].label, [None] * len(columns), columns, group)
        differs = {key: [str(value) for value in pair] for key, pair in group[0].differs.items()}
        rows.append({**row, "differs": differs, "nearest": nearest})
    return rows


def _beside(filled: Sequence[Run], run: Run) -> Run:
    """Return a run, which differs if another run in its row has other labels for a column."""
    for other in filled:
        shared = run.classes.keys() & other.classes if run.figures.keys() & other.figures else ()
        for split in sorted(shared):
            if run.classes[split] != other.classes[split]:
                labels = ("other labels or another order", f"as in {other.path.name}")
                return replace(run, differs={f"DATA.{split} labels": labels})
    return run


def _row(
    method: str, published: Sequence[float | None], columns: Sequence[str], runs: Sequence[Run]
) -> dict[str, Any]:
    measured: list[float | None] = []
    spread: list[float | None] = []
    sources: list[list[dict[str, Any]]] = []
    for column in columns:
        with_column = [run for run in runs if column in run.figures]
        values = [run.figures[column] for run in with_column]
        measured.append(statistics.fmean(values) if values else None)
        spread.append(statistics.stdev(values) if len(values) > 1 else None)
        sources.append(
            [
                {"run": str(run.path), "layer": run.layer, "not_known": list(run.unknown)}
                for run in with_column
            ]
        )
    return {
        "method": method,
        "published": list(published),
        "measured": measured,
        "spread": spread,
        "runs": sources,
        "differs": {},
    }


def has_measured(table: Mapping[str, Any]) -> bool:
    """Return whether a table from :func:`lay_out` has a run's figure."""
    return any(value is not None for row in table["rows"] for value in row["measured"])


def markdown(tables: Sequence[Mapping[str, Any]]) -> str:
    """Format tables as Markdown, with a measured column after each published one."""
    return "\n\n".join(_markdown(table) for table in tables)


def not_known(runs: Iterable[Run]) -> str:
    """Return what the comparison with the paper's runs could not verify."""
    lines = [
        "Compared: settings, epochs, batches, and numbers of images. Not known: whether the images "
        "are the paper's, and whether a weights file was modified outside these runs."
    ]
    for run in runs:
        if run.unknown:
            lines.append(f"- {run.path}: not known: {', '.join(run.unknown)}")
    return "\n".join(lines)


def _markdown(table: Mapping[str, Any]) -> str:
    heads = [head for column in table["columns"] for head in (column, "here")]
    lines = [
        f"### Table {table['number']}. {table['title']}",
        "",
        f"| | {' | '.join(heads)} |",
        "|---" * (len(heads) + 1) + "|",
    ]
    for row in table["rows"]:
        cells = [row["method"].replace("|", "\\|")]
        for column in range(len(table["columns"])):
            cells.append(_number(row["published"][column]))
            cells.append(_number(row["measured"][column]) + _spread(row, column))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _spread(row: Mapping[str, Any], column: int) -> str:
    spread = row["spread"][column]
    return "" if spread is None else f" ± {spread:.1f} ({len(row['runs'][column])} runs)"
