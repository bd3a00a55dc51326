"""``pirl-plugin results``: finished runs in the form of the paper's tables."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pirl_plugin.arguments import output_folder
from pirl_plugin.evaluation.tables.figures import write_figures
from pirl_plugin.evaluation.tables.finished_runs import FinishedRun, read_run
from pirl_plugin.evaluation.tables.layout import lay_out
from pirl_plugin.evaluation.tables.markdown import markdown, markdown_of_measured
from pirl_plugin.utils.outputs import write_text


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
    print(texts["json"] if options.json else markdown_of_measured(tables))
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
