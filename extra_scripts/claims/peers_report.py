"""Write the tables and figures of comparisons with peers.

    python extra_scripts/claims/peers_report.py OUT/peers.json ... --out DIR

Each file is from ``peers.py``, for one data set. Writes ``DIR/peers.svg`` and the tables in
``DIR/peers.md``, below the text that is there.
``--few-labels`` and ``--recipes`` take the JSON from ``few_labels.py`` and ``recipes.py`` and add
their tables, and the figure ``few_labels.svg``. Needs no images.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from intervals import Accuracy, difference, interval_of, unpacked
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from report_files import below_text, markdown_table, write_files

from pirl_plugin.system.arguments import Parser

LABELS = {
    "pirl_jigsaw": "PIRL (jigsaw)",
    "pirl_rotation": "PIRL (rotation)",
    "npid": "NPID",
    "simclr": "SimCLR",
    "moco_v2": "MoCo v2",
    "byol": "BYOL",
    "random": "untrained",
}
STARTS = {"pirl_jigsaw": "from PIRL", "npid": "from NPID", "random": "from random weights"}
BUDGETS = ("equal images", "equal time")
MEASURES = {"knn_top1": "kNN", "linear_top1": "linear"}
REFERENCE = "pirl_jigsaw"


def runs_at(content: dict[str, Any], budget: str) -> pd.DataFrame:
    """Return the runs at a budget, and the untrained networks.

    If a method's epochs are the same at equal time, it has runs at equal images only.

    Args:
        content: the content of ``peers.json``.
        budget: ``equal images`` or ``equal time``.
    """
    rows = pd.DataFrame(content["runs"])
    chosen = rows["compared_at"].isin([budget, "untrained"])
    if budget == "equal time":
        epochs = content.get("equal_time_epochs", {})
        same = [name for name in epochs if epochs[name] == content["setting"]["epochs"]]
        chosen |= rows["method"].isin(same) & (rows["compared_at"] == "equal images")
    return rows[chosen]


def accuracy_of(rows: pd.DataFrame, measure: str, photos: int) -> Accuracy:
    """Return a measure for one method.

    Args:
        rows: the runs, one per seed.
        measure: column with top-1 in percent.
        photos: number of test photos.
    """
    by_seed = rows.set_index("seed")
    column = measure.removesuffix("top1") + "right"
    right = {}
    if column in by_seed:
        right = {seed: unpacked(digits, photos) for seed, digits in by_seed[column].items()}
    return Accuracy(by_seed[measure], photos, right)


def accuracies_of(content: dict[str, Any], budget: str) -> dict[tuple[str, str], Accuracy]:
    """Return (method, measure) → accuracy at a budget."""
    rows = runs_at(content, budget)
    photos = content["setting"]["val_images"]
    return {
        (method, measure): accuracy_of(own, measure, photos)
        for method, own in rows.groupby("method")
        for measure in MEASURES
    }


def lead(first: Accuracy, second: Accuracy) -> str:
    """Return an accuracy's lead in points, with an arrow if it exceeds chance."""
    found = difference(first, second)
    return "–" if found is None else found.text("+") + found.arrow


def summary_table(contents: list[dict[str, Any]]) -> str:
    """Tabulate kNN / linear accuracy for each method and data set, in Markdown.

    An arrow marks a method whose difference from PIRL (jigsaw) has an interval that excludes 0:
    ``↑`` is better, ``↓`` is worse.
    """
    columns = [(content, budget) for content in contents for budget in budgets_of(content)]
    titles = [f"{content['setting']['data']}, {budget}" for content, budget in columns]
    rows = []
    found = [accuracies_of(content, budget) for content, budget in columns]
    for method, label in LABELS.items():
        cells = []
        for accuracies in found:
            words = []
            for measure in MEASURES:
                own = accuracies.get((method, measure))
                if own is not None:
                    is_compared = method not in (REFERENCE, "random")
                    ahead = difference(own, accuracies[REFERENCE, measure]) if is_compared else None
                    words.append(interval_of(own).text() + (ahead.arrow if ahead else ""))
            cells.append(" / ".join(words) or "–")
        if set(cells) != {"–"}:
            rows.append([label, *cells])
    return markdown_table(["kNN / linear", *titles], rows)


def budgets_of(content: dict[str, Any]) -> list[str]:
    """Return the budgets at which methods were compared."""
    compared = {row["compared_at"] for row in content["runs"]}
    return [budget for budget in BUDGETS if budget in compared]


def accuracy_table(content: dict[str, Any], budget: str) -> str:
    """Tabulate each method's accuracy, and PIRL's lead, in Markdown."""
    rows = runs_at(content, budget)
    accuracies = accuracies_of(content, budget)
    lines = []
    for method, label in LABELS.items():
        own = rows[rows["method"] == method]
        if own.empty:
            continue
        leads = ["", ""]
        if method not in (REFERENCE, "random"):
            leads = [
                lead(accuracies[REFERENCE, measure], accuracies[method, measure])
                for measure in MEASURES
            ]
        cells = [
            label,
            *(interval_of(accuracies[method, measure]).text() for measure in MEASURES),
            f"{own['images'].mean():,.0f}",
            f"{own['cpu_seconds'].mean():,.0f}",
            *leads,
        ]
        lines.append(cells)
    titles = ["kNN", "linear", "images seen", "CPU time, s", "PIRL's lead, kNN", "linear"]
    return markdown_table(["", *titles], lines)


def selection_table(content: dict[str, Any]) -> str:
    """Tabulate kNN / linear by batch and rate on the images used to choose, in Markdown."""
    rows = pd.DataFrame(content["selection"])
    rows["setting"] = [f"{row['batch']}, {row['rate_of_32_images']}" for _, row in rows.iterrows()]
    rows["accuracy"] = [f"{row['knn_top1']} / {row['linear_top1']}" for _, row in rows.iterrows()]
    table = rows.pivot(index="method", columns="setting", values="accuracy")
    settings = list(dict.fromkeys(rows["setting"]))
    methods = dict.fromkeys(rows["method"])
    lines = [[LABELS[method], *table.loc[method, settings]] for method in methods]
    return markdown_table(["batch, rate", *settings], lines)


def few_labels_table(runs: list[dict[str, Any]], photos: int) -> str:
    """Tabulate fine-tuned accuracy by fraction of the labels, and the gain from pre-training."""
    rows = pd.DataFrame(runs)
    gained = [start for start in STARTS if start != "random"]
    titles = [*STARTS.values(), *(f"gain {STARTS[start]}" for start in gained)]
    lines = []
    for (fraction, epochs), part in rows.groupby(["fraction", "epochs"]):
        found = {start: accuracy_of(own, "top1", photos) for start, own in part.groupby("start")}
        cells = [f"{100 * fraction:g} %, {epochs}"]
        cells += [interval_of(found[start]).text() for start in STARTS]
        cells += [lead(found[start], found["random"]) for start in gained]
        lines.append(cells)
    return markdown_table(["labels, epochs", *titles], lines)


def recipes_table(content: dict[str, Any]) -> str:
    """Tabulate the accuracy for each setting in ``recipes.py``."""
    lines = []
    photos = {name: content["setting"][f"{name}_images"] for name in ("val", "selection")}
    keys = ["measured_on", "epochs", "recipe"]
    for (measured_on, epochs, recipe), part in pd.DataFrame(content["runs"]).groupby(
        keys, sort=False
    ):
        number = photos["val" if measured_on == "val" else "selection"]
        accuracies = [
            interval_of(accuracy_of(part, measure, number)).text() for measure in MEASURES
        ]
        lines.append([recipe, measured_on, str(epochs), str(len(part)), *accuracies])
    titles = ["setting", "measured on", "epochs", "seeds", "kNN", "linear"]
    return markdown_table(titles, lines)


def few_labels_figure(runs: list[dict[str, Any]]) -> Figure:
    """Draw a dot for each fine-tuning run, and lines for means over the seeds."""
    rows = pd.DataFrame(runs)
    drawn = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = drawn.subplots()
    for color, (start, label) in zip(("C3", "C0", "0.4"), STARTS.items(), strict=True):
        own = rows[rows["start"] == start]
        means = own.groupby("fraction")["top1"].mean()
        axes.plot(100 * means.index, means, color=color, label=label)
        axes.plot(100 * own["fraction"], own["top1"], ".", color=color)
    fractions = sorted(set(rows["fraction"]))
    axes.set_xscale("log")
    axes.set_xticks([100 * f for f in fractions], [f"{100 * f:g} %" for f in fractions])
    axes.set_xticks([], minor=True)
    axes.set(xlabel="Labels used", ylabel="Fine-tuned, top-1 (%)")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return drawn


def figure(contents: list[dict[str, Any]]) -> Figure:
    """Draw a dot per run and a bar per mean at both budgets, with a row for each data set."""
    drawn = Figure(figsize=(9, 3.2 * len(contents)), layout="constrained")
    panels = drawn.subplots(len(contents), len(MEASURES), squeeze=False)
    colors = dict(zip(BUDGETS, ("C0", "C1"), strict=True))
    for line, content in zip(panels, contents, strict=True):
        for axes, (measure, title) in zip(line, MEASURES.items(), strict=True):
            axes.set_title(f"{content['setting']['data']}: {title}, top-1 (%)", fontsize=10)
            draw_bars(axes, content, measure, colors)
    handles = [matplotlib.patches.Patch(color=color, alpha=0.5) for color in colors.values()]
    drawn.legend(handles, BUDGETS, loc="outside lower center", ncols=2, frameon=False)
    return drawn


def draw_bars(axes: Axes, content: dict[str, Any], measure: str, colors: dict[str, str]) -> None:
    """Draw all runs on a data set for one measure, with a pair of bars per method."""
    for offset, (budget, color) in zip((0.2, -0.2), colors.items(), strict=True):
        rows = runs_at(content, budget)
        for place, method in enumerate(reversed(LABELS)):
            values = rows.loc[rows["method"] == method, measure]
            if values.empty:
                continue
            heights = [place + offset] * len(values)
            axes.barh(place + offset, values.mean(), height=0.36, color=color, alpha=0.35)
            axes.plot(values, heights, ".", color=color, markersize=5)
    axes.set_yticks(range(len(LABELS)), [LABELS[method] for method in reversed(LABELS)])
    axes.grid(axis="x", alpha=0.25)


def main() -> None:
    """Write the tables and the figures."""
    parser = Parser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="peers.json for each data set")
    parser.add_argument("--few-labels", type=Path, help="few_labels.json")
    parser.add_argument("--recipes", type=Path, help="recipes.json")
    parser.add_argument("--out", type=Path, required=True, help="folder for the report")
    options = parser.parse_args()
    contents = [json.loads(file.read_text("utf-8")) for file in options.files]
    blocks = [summary_table(contents)]
    for content in contents:
        blocks.append(f"## {content['setting']['data']}")
        for budget in budgets_of(content):
            blocks += [f"At {budget}:", accuracy_table(content, budget)]
    if contents[0]["selection"]:
        blocks += ["## The choice of batch and rate", selection_table(contents[0])]
    figures = {"peers": figure(contents)}
    if options.few_labels:
        runs = json.loads(options.few_labels.read_text("utf-8"))
        blocks += ["## Few labels", few_labels_table(runs, contents[0]["setting"]["val_images"])]
        figures["few_labels"] = few_labels_figure(runs)
    if options.recipes:
        content = json.loads(options.recipes.read_text("utf-8"))
        blocks += ["## Settings of PIRL", recipes_table(content)]
    page = below_text(options.out / "peers.md", "Beside other methods", "\n\n".join(blocks))
    write_files(options.out, "peers", page, figures)


if __name__ == "__main__":
    main()
