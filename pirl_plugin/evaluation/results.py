"""``pirl-plugin results``: finished runs in the form of the paper's tables."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pirl_plugin.evaluation.finished_runs import LAYERS, Run, read_run

_PUBLISHED = Path(__file__).with_name("published.json")


def main(arguments: list[str]) -> None:
    """Run the command.

    Raises:
        SystemExit: a folder is not that of a finished run.
    """
    options = _parse(arguments)
    try:
        runs = [read_run(*_labelled(argument)) for argument in options.runs]
    except (OSError, ValueError, KeyError) as error:
        raise SystemExit(f"pirl_plugin: {error}") from None
    tables = lay_out(runs)
    texts = {"md": markdown(tables), "json": json.dumps({"tables": tables}, indent=2)}
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        for suffix, text in texts.items():
            (options.out / f"results.{suffix}").write_text(text + "\n")
    print(texts["json" if options.json else "md"])


def lay_out(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The paper's seven tables, and one of kNN figures where there are any.

    Returns:
        For each table its ``number``, ``title``, ``columns`` and ``rows``; a row has a ``method``,
        ``published`` and ``measured``, a number or None for each column, the mean where several
        runs measured the same, ``spread``, their standard deviation, and ``runs``: for each column
        the folders and the layers that were best.
    """
    tables = []
    for table in json.loads(_PUBLISHED.read_text())["tables"]:
        number, columns = table["number"], table["columns"]
        mine = [run for run in runs if number in run.tables and set(columns) & set(run.figures)]
        methods = dict(table["rows"])
        methods |= {run.method: [None] * len(columns) for run in mine if run.method not in methods}
        rows = [
            _row(method, published, columns, [run for run in mine if run.method == method])
            for method, published in methods.items()
        ]
        tables.append({"number": number, "title": table["title"], "columns": columns, "rows": rows})
    others = [run for run in runs if "kNN" in run.figures]
    if others:
        rows = [
            _row(name, [None], ["kNN"], [run for run in others if run.method == name])
            for name in dict.fromkeys(run.method for run in others)
        ]
        title = "k nearest neighbours, top-1; not in the paper"
        tables.append({"number": None, "title": title, "columns": ["kNN"], "rows": rows})
    return tables


def markdown(tables: Sequence[dict[str, Any]]) -> str:
    """The tables as text; beside each published column what was measured here, blank if nothing."""
    parts = []
    for table in tables:
        head = f"Table {table['number']}. " if table["number"] else ""
        columns = [name for column in table["columns"] for name in (column, "here")]
        lines = [
            f"### {head}{table['title']}",
            "",
            f"| | {' | '.join(columns)} |",
            "|---|" + "---|" * len(columns),
        ]
        for row in table["rows"]:
            cells = [
                text
                for i in range(len(table["columns"]))
                for text in (_number(row["published"][i]), _measured(row, i, table["columns"][i]))
            ]
            lines.append(f"| {row['method']} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _row(
    method: str, published: Sequence[float | None], columns: Sequence[str], runs: Sequence[Run]
) -> dict[str, Any]:
    measured: list[float | None] = []
    spread: list[float | None] = []
    sources = []
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
    }


def _measured(row: dict[str, Any], i: int, column: str) -> str:
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
        description="Prints the paper's tables, what finished runs measured beside the published.",
    )
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="folder of a benchmark's run; ROW=RUN names the row, such as 'PIRL=runs/linear', "
        "which is otherwise told by the run that made its checkpoint",
    )
    parser.add_argument("--json", action="store_true", help="print JSON and not Markdown")
    parser.add_argument("--out", type=Path, help="folder for results.md and results.json")
    return parser.parse_args(arguments)
