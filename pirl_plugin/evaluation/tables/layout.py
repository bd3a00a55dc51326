"""Finished runs in the rows and columns of the paper's tables."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from typing import TYPE_CHECKING, TypedDict

from pirl_plugin.evaluation.tables.published import published_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pirl_plugin.evaluation.tables.finished_runs import FinishedRun


class Source(TypedDict):
    """A run that measured a figure: its folder, and the layer that was best where it says so."""

    run: str
    layer: str | None


class Row(TypedDict):
    """A row of a table; lists have an entry for each column."""

    method: str
    published: list[float | None]
    measured: list[float | None]
    spread: list[float | None]
    runs: list[list[Source]]
    differs: dict[str, list[str]]


class Table(TypedDict):
    """A table; ``number`` is None of one that is not the paper's."""

    number: int | None
    title: str
    columns: list[str]
    rows: list[Row]


def lay_out(runs: Sequence[FinishedRun]) -> list[Table]:
    """The paper's seven tables, then one for each own data set and one of kNN figures.

    A run whose settings are a row's fills that row. Any other has a row of its own, and only runs
    of equal settings share one.

    Returns:
        For each table its ``number``, ``title``, ``columns`` and ``rows``; a row has a ``method``,
        ``published`` and ``measured``, a number or None for each column, the mean where several
        runs measured the same, ``spread``, their standard deviation, ``runs``: for each column
        the folders and the layers that were best, and ``differs``: key → value of the run and of
        the paper's row, empty where the run is that row's.
    """
    tables: list[Table] = []
    for table in published_tables():
        number, columns = table["number"], table["columns"]
        mine = [run for run in runs if number in run.tables and set(columns) & set(run.figures)]
        ours = [run for run in mine if run.method in table["rows"] and not run.differs]
        rows = [
            _row(method, published, columns, [run for run in ours if run.method == method])
            for method, published in table["rows"].items()
        ]
        rows += _own_rows([run for run in mine if run not in ours], columns)
        tables.append({"number": number, "title": table["title"], "columns": columns, "rows": rows})
    for data in dict.fromkeys(run.data for run in runs if run.data is not None):
        mine = [run for run in runs if run.data == data]
        columns = list(dict.fromkeys(column for run in mine for column in run.figures))
        title = f"Linear models on {data}, percent; not in the paper"
        rows = _own_rows(mine, columns)
        tables.append({"number": None, "title": title, "columns": columns, "rows": rows})
    others = [run for run in runs if "kNN" in run.figures]
    if others:
        title = "k nearest neighbours, top-1; not in the paper"
        rows = _own_rows(others, ["kNN"])
        tables.append({"number": None, "title": title, "columns": ["kNN"], "rows": rows})
    return tables


def _own_rows(runs: Sequence[FinishedRun], columns: Sequence[str]) -> list[Row]:
    """A row for each group of runs that have equal settings and one name.

    Groups of one name have the folder of their first run beside it.
    """
    groups: dict[tuple[str, str, str], list[FinishedRun]] = {}
    for run in runs:
        method = run.method.removeprefix(run.path.name) if run.differs else run.method
        differ = json.dumps(run.differs, sort_keys=True, default=str)
        groups.setdefault((method, run.identity, differ), []).append(run)
    names = Counter(group[0].method for group in groups.values())
    rows = []
    for group in groups.values():
        first = group[0]
        shared = names[first.method] > 1
        method = f"{first.method} ({first.path.name})" if shared else first.method
        rows.append(_row(method, [None] * len(columns), columns, group))
    return rows


def _row(
    method: str,
    published: Sequence[float | None],
    columns: Sequence[str],
    runs: Sequence[FinishedRun],
) -> Row:
    measured: list[float | None] = []
    spread: list[float | None] = []
    sources: list[list[Source]] = []
    for column in columns:
        found = [run for run in runs if column in run.figures]
        values = [run.figures[column] for run in found]
        measured.append(statistics.fmean(values) if values else None)
        spread.append(statistics.stdev(values) if len(values) > 1 else None)
        sources.append([{"run": str(run.path), "layer": run.best_layer} for run in found])
    return {
        "method": method,
        "published": list(published),
        "measured": measured,
        "spread": spread,
        "runs": sources,
        "differs": {k: [str(v) for v in values] for r in runs for k, values in r.differs.items()},
    }
