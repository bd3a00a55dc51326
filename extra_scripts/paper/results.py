"""Arrange finished runs as the paper's tables and figures."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from paper_figures import draw_layers, draw_parameters
from paper_runs import read_run
from paper_tables import Run, has_measured, lay_out, markdown, not_known

from pirl_plugin import cli
from pirl_plugin.system.arguments import Parser, user_path
from pirl_plugin.system.failures import PREFIX, Refused, sentence
from pirl_plugin.system.files import write_text


def main(arguments: list[str]) -> int:
    """Run the command; return the exit status, which is 1 if a folder could not be read."""
    options = _parse(arguments)
    runs: dict[Path, Run] = {}  # a folder named twice is one run
    status = 0
    for folder in options.runs:
        try:
            runs[folder.resolve()] = read_run(folder)
        except (OSError, ValueError, KeyError, TypeError) as error:
            status = 1
            print(f"{PREFIX}{folder}: {sentence(error)}", file=sys.stderr)
    if not runs:
        names = ", ".join(map(str, options.runs))
        raise Refused(f"No finished run in {names}. Name at least one.")
    tables = lay_out(list(runs.values()))
    text = json.dumps({"tables": tables}, indent=2)
    notes = not_known(runs.values())
    if options.out is not None:
        write_text(options.out / "results.md", f"{markdown(tables)}\n\n{notes}\n")
        write_text(options.out / "results.json", text + "\n")
        draw_parameters(tables).savefig(options.out / "figure_2.png", dpi=200)
        draw_layers(tables).savefig(options.out / "figure_5.png", dpi=200)
    measured = [table for table in tables if has_measured(table)]
    print(text if options.json else f"{markdown(measured)}\n\n{notes}")
    return status


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog="results.py",
        description="Print the paper's tables with results from finished runs.",
        epilog="Example: python extra_scripts/paper/results.py runs/linear runs/svm",
    )
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", type=user_path, help="folder of a benchmark run")
    add("--json", action="store_true", help="print JSON instead of Markdown")
    add("--out", type=user_path, help="folder for results.md, results.json, and Figures 2 and 5")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    cli.main(main)
