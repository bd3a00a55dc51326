"""Write the tables and the figure of ``starts.py``.

    python extra_scripts/claims/starts_report.py OUT/starts.json ... --out DIR

Each file is that of a data set. Writes ``DIR/starts.md`` and ``DIR/starts.svg``. Needs no images.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure
from starts_questions import KEY_QUESTIONS, questions_table
from starts_rows import LABELS, MEASURES, accuracy_of, frozen_rows, in_order, row_title, seconds_of

# Rows of the short table.
SHORT = (
    ("histograms", 0),
    ("random", 0),
    ("pirl_jigsaw", 40),
    ("npid", 40),
    ("npid", 94),  # the time of PIRL's 40
    ("published", 0),
)


def frozen_table(content: dict[str, Any]) -> str:
    """Return a line for each row: means ± standard deviations at the last and the best layer."""
    titles = [f"{title}: last, best" for title in MEASURES.values()]
    lines = [
        f"| | seeds | {' | '.join(titles)} | best layers | processor time, s |",
        "|---|---|" + "---|" * (len(titles) + 2),
    ]
    for (start, passes, size), part in in_order(frozen_rows(content)):
        cells = [row_title(start, passes, size), str(len(part))]
        for measure in MEASURES:
            accuracies = [accuracy_of(part[f"{measure} {layer}"]) for layer in ("last", "best")]
            cells.append(accuracies[0] if start == "histograms" else ", ".join(accuracies))
        layers = sorted({*part["knn layer"], *part["linear layer"]})
        cells.append("" if start == "histograms" else ", ".join(map(layer_title, layers)))
        cells.append(f"{seconds_of(content, start, passes, size):,.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def layer_title(name: str) -> str:
    """Return a layer's short name."""
    return name.removeprefix("net.")


def tuned_table(content: dict[str, Any]) -> str:
    """Return the accuracy of networks that were fine-tuned on 5 and 10 % of the labels."""
    rows = pd.DataFrame(content["fine_tuned"])
    fractions = sorted(rows["fraction"].unique())
    lines = [
        f"| fine-tuned | seeds | {' | '.join(f'{100 * f:g} % of the labels' for f in fractions)} |",
        "|---|---|" + "---|" * len(fractions),
    ]
    for (start, passes, size), part in in_order(rows):
        title = row_title(start, passes, size).replace(", frozen", "")
        accuracies = [part.loc[part["fraction"] == f, "top1"] for f in fractions]
        cells = [title, str(part["seed"].nunique())]
        cells += ["–" if values.empty else accuracy_of(values) for values in accuracies]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def selection_table(content: dict[str, Any]) -> str:
    """Return kNN / linear of each way to continue, on the tenth of the photos that chooses."""
    titles: dict[str, Callable[[Any], str]] = {
        "rate": lambda value: f"{value:g}",
        "fixed_statistics": lambda value: "ImageNet's" if value else "of the views",
        "tail_only": lambda value: "last stages" if value else "all",
        "heads_first": lambda value: "yes" if value else "no",
    }
    lines = [
        "| rate | batch norm's statistics | trained layers | heads first | NPID | PIRL |",
        "|---|---|---|---|---|---|",
    ]
    by_setting: dict[tuple[str, ...], dict[str, str]] = {}
    for row in content["selection"]:
        accuracy = f"{row['knn_top1']:.1f} / {row['linear_top1']:.1f}"
        setting = row.get("continuation")
        if setting is None:
            by_setting["–", "–", "none: frozen", "–"] = {"npid": accuracy, "pirl_jigsaw": accuracy}
            continue
        cells = tuple(title(setting[key]) for key, title in titles.items())
        by_setting.setdefault(cells, {})[row["method"]] = accuracy
    for words, accuracies in by_setting.items():
        both = [accuracies.get(method, "–") for method in ("npid", "pirl_jigsaw")]
        lines.append(f"| {' | '.join([*words, *both])} |")
    return "\n".join(lines)


def summary_table(contents: list[dict[str, Any]], rows: Sequence[tuple[str, int]] = ()) -> str:
    """Return kNN / linear of the best layer of each row on each set of photos.

    Args:
        contents: of ``starts.json`` of each set.
        rows: starts with their passes, at the largest size that was measured; none: all rows.
    """
    names = [content["setting"]["data"] for content in contents]
    cells: dict[tuple[str, int, int], list[str]] = {}
    for number, content in enumerate(contents):
        for key, part in in_order(frozen_rows(content)):
            line = cells.setdefault(key, ["–"] * len(contents))
            line[number] = " / ".join(
                accuracy_of(part[f"{measure} best"]).replace(" ", "\u00a0")
                for measure in ("knn", "linear")
            )
    starts = list(LABELS)
    keys = sorted(cells, key=lambda key: (starts.index(key[0]), *key[1:]))
    if rows:
        largest = {key[:2]: key for key in keys}
        keys = [largest[row] for row in rows if row in largest]
    titles = ["kNN / linear, best layer", *names, "processor time, s"]
    lines = [f"| {' | '.join(titles)} |", "|---|" + "---|" * (len(titles) - 1)]
    for key in keys:
        seconds = f"{seconds_of(contents[0], *key):,.0f}"  # of the first set
        lines.append(f"| {' | '.join([row_title(*key), *cells[key], seconds])} |")
    return "\n".join(lines)


def figure(contents: list[dict[str, Any]]) -> Figure:
    """Draw linear accuracy over processor time: a panel for each set, a line for each method."""
    drawn = Figure(figsize=(3.4 * len(contents), 3.6), layout="constrained")
    panels = drawn.subplots(1, len(contents), squeeze=False)[0]
    for axes, content in zip(panels, contents, strict=True):
        groups = in_order(frozen_rows(content))
        for number, (start, label) in enumerate(LABELS.items()):
            points = [
                (seconds_of(content, *key), part["linear best"].mean())
                for key, part in groups
                if key[0] == start
            ]
            if points:
                seconds, accuracies = zip(*sorted(points), strict=True)
                axes.plot(seconds, accuracies, "o-", color=f"C{number}", markersize=4, label=label)
        axes.set_xscale("log")
        axes.set_title(content["setting"]["data"], fontsize=10)
        axes.set_xlabel("Processor time (s)")
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("Linear, best layer, top-1 (%)")
    handles, labels = panels[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return drawn


def main() -> None:
    """Write the tables and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="starts.json of each data set")
    parser.add_argument("--out", type=Path, required=True, help="folder of the report")
    options = parser.parse_args()
    contents = [json.loads(file.read_text("utf-8")) for file in options.files]
    blocks = ["# Tables: what to start from", summary_table(contents, SHORT)]
    blocks += ["## Differences", questions_table(contents, KEY_QUESTIONS)]
    blocks += ["## All rows", summary_table(contents)]
    blocks += ["## All differences", questions_table(contents)]
    tables: dict[str, Callable[[dict[str, Any]], str]] = {
        "Frozen features": frozen_table,
        "Fine-tuned": tuned_table,
    }
    for content in contents:
        blocks.append(f"## {content['setting']['data']}")
        for title, table in tables.items():
            if title != "Fine-tuned" or content["fine_tuned"]:
                blocks += [f"### {title}", table(content)]
    if contents[0]["selection"]:
        blocks += ["## How to continue from published weights", selection_table(contents[0])]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "starts.md").write_text("\n\n".join(blocks) + "\n", "utf-8")
    matplotlib.rcParams["svg.hashsalt"] = "pirl"  # the same rows give the same bytes
    figure(contents).savefig(options.out / "starts.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
