"""``pirl-plugin results``: finished runs in the form of the paper's tables."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pirl_plugin.evaluation.figures import write_figures
from pirl_plugin.evaluation.finished_runs import FinishedRun, read_run
from pirl_plugin.evaluation.published import LAYERS, published_tables
from pirl_plugin.utils.arguments import output_folder
from pirl_plugin.utils.outputs import write_text

if TYPE_CHECKING:
    from pirl_plugin.evaluation.result_tables import Row, Source, Table


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status, 1 where a folder could not be read.

    Raises:
        SystemExit: no folder is that of a finished run.
    """
    options = _parse(arguments)
    runs, bad = read_runs(options.runs)
    for sentence in bad:
        print(f"pirl_plugin: {sentence}", file=sys.stderr)
    if not runs:
        raise SystemExit("pirl_plugin: no run can be shown")
    tables = lay_out(runs)
    texts = {"md": markdown(tables), "json": json.dumps({"tables": tables}, indent=2)}
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        for suffix, text in texts.items():
            write_text(options.out / f"results.{suffix}", text + "\n")
        write_figures(options.out, tables)
    print(texts["json"] if options.json else _of_measurements(tables))
    return 1 if bad else 0


def read_runs(arguments: Sequence[str]) -> tuple[list[FinishedRun], list[str]]:
    """The runs that can be read, and a sentence about each that cannot.

    Args:
        arguments: ``ROW=RUN`` or ``RUN``.
    """
    runs, bad = [], []
    seen: set[Path] = set()
    for argument in arguments:
        path, row = _labelled(argument)
        if path.resolve() in seen:
            bad.append(f"{argument}: expected each run once, and its folder was named before")
            continue
        seen.add(path.resolve())
        try:
            runs.append(read_run(path, row))
        except (OSError, ValueError) as error:
            bad.append(str(error))
        except (KeyError, TypeError, AttributeError) as error:
            bad.append(
                f"{path}: expected what a run of this package or its host leaves; its "
                f"train_config.yaml or results.json is not that ({type(error).__name__}: {error})"
            )
    return runs, bad


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


def markdown(tables: Sequence[Table]) -> str:
    """The tables as text; beside each published column what was measured here, blank if nothing."""
    parts = []
    for table in tables:
        own = table["number"] is None
        columns = table["columns"] if own else [n for c in table["columns"] for n in (c, "here")]
        head = "" if own else f"Table {table['number']}. "
        lines = [
            f"### {head}{table['title']}",
            "",
            f"| | {' | '.join(columns)} |",
            "|---|" + "---|" * len(columns),
        ]
        for row in table["rows"]:
            cells = []
            for i, column in enumerate(table["columns"]):
                cells += [] if own else [_number(row["published"][i])]
                cells.append(_measured(row, i, column))
            lines.append(f"| {row['method'].replace('|', chr(92) + '|')} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _of_measurements(tables: Sequence[Table]) -> str:
    """The tables in which something was measured, as text, and the numbers of the others."""
    measured = [t for t in tables if any(v is not None for r in t["rows"] for v in r["measured"])]
    others = ", ".join(str(t["number"]) for t in tables if t not in measured)
    note = f"\n\nNothing here is of the paper's tables {others}; --out DIR writes them too"
    return markdown(measured) + (note if others else "")


def _own_rows(runs: Sequence[FinishedRun], columns: Sequence[str]) -> list[Row]:
    """A row for each group of runs that have equal settings and one name."""
    groups: dict[tuple[str, str, str], list[FinishedRun]] = {}
    for run in runs:
        method = run.method.removeprefix(run.path.name) if run.differs else run.method
        differ = json.dumps(run.differs, sort_keys=True, default=str)
        groups.setdefault((method, run.identity, differ), []).append(run)
    return [
        _row(group[0].method, [None] * len(columns), columns, group) for group in groups.values()
    ]


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


def _measured(row: Row, i: int, column: str) -> str:
    text = _number(row["measured"][i])
    best = sorted({source["layer"] for source in row["runs"][i] if source["layer"] is not None})
    if best and not column.endswith(LAYERS):
        text += f" {', '.join(best)}"
    if row["spread"][i] is not None:
        text += f" ± {row['spread'][i]:.1f} ({len(row['runs'][i])} runs)"
    return text


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _labelled(argument: str) -> tuple[Path, str | None]:
    """``ROW=RUN`` or ``RUN``; a folder whose own name has a ``=`` is a run."""
    row, separator, run = argument.partition("=")
    if separator and not Path(argument).exists():
        return Path(run), row
    return Path(argument), None


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pirl-plugin results",
        description="Print the paper's tables, what finished runs measured beside the published. A "
        "run belongs to a paper's row only if all that the paper fixes for it is equal; any other "
        "has a row of its own, which names what differs.",
    )
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="folder of a benchmark's run; ROW=RUN names the row, such as 'Supervised=runs/linear',"
        " where the checkpoint has no train_config.yaml beside it that says so",
    )
    parser.add_argument("--json", action="store_true", help="print JSON and not Markdown")
    parser.add_argument(
        "--out",
        type=output_folder,
        help="folder for results.md, results.json, and the figures of top-1 by parameters (Fig. 2) "
        "and by layer (Fig. 5)",
    )
    return parser.parse_args(arguments)
