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
from peers_report import lead_words, paired_difference, spread

LABELS = {
    "histograms": "histograms, no network",
    "random": "untrained",
    "npid": "NPID",
    "pirl_rotation": "PIRL (rotation)",
    "pirl_jigsaw": "PIRL (jigsaw)",
    "published": "published weights, frozen",
    "npid continued": "published weights, then NPID",
    "pirl_jigsaw continued": "published weights, then PIRL",
}
CONTINUED = ("npid continued", "pirl_jigsaw continued")
MEASURES = {
    "knn": "kNN",
    "linear": "linear",
    "linear_0.05": "linear, 5 %",
    "linear_0.1": "linear, 10 %",
}
# Rows of the short table.
SHORT = (
    ("histograms", 0),
    ("random", 0),
    ("pirl_jigsaw", 40),
    ("npid", 40),
    ("npid", 94),  # the time of PIRL's 40
    ("published", 0),
)
# Differences of the page's table.
KEY_QUESTIONS = (
    "PIRL, 40 passes: best layer − last layer",
    "PIRL, 40 passes − untrained network, best layers",
    "PIRL, 40 passes − histograms",
    "PIRL: jigsaw − rotation, 40 passes",
    "PIRL − NPID, 40 passes",
    "PIRL, 40 passes − NPID, 94 passes: the same time",
    "PIRL − NPID, 160 passes",
    "PIRL, 160 passes − NPID, 376 passes: the same time",
    "published weights, 128 px, frozen − PIRL, 40 passes",
    "published weights, then NPID, 5 passes − frozen, 64 px: kNN",
    "published weights, then NPID, 5 passes − frozen, 64 px: linear",
    "published weights, then NPID, 5 passes − frozen, 64 px: linear, 10 %",
    "published weights, then NPID, 20 passes − frozen, 64 px: kNN",
    "published weights, then NPID, 20 passes − frozen, 64 px: linear",
    "published weights, then PIRL, 5 passes − frozen, 64 px: kNN",
    "published weights, then PIRL, 5 passes − frozen, 64 px: linear",
    "published weights, then PIRL, 20 passes − frozen, 64 px: kNN",
    "published weights, then PIRL, 20 passes − frozen, 64 px: linear",
    "10 % of the labels, fine-tuned: PIRL (jigsaw), 40 passes − random weights",
    "10 % of the labels, fine-tuned: PIRL (rotation), 40 passes − random weights",
    "10 % of the labels, fine-tuned: NPID, 40 passes − random weights",
    "10 % of the labels, fine-tuned: published weights, then NPID, 5 passes − published weights",
    "10 % of the labels, published weights, 64 px: fine-tuned − linear, best layer",
)
ROW = ["start", "passes", "size"]  # what the seeds of a row share
HEAD_PASSES = 2  # as in starting_points.py


def frozen_rows(content: dict[str, Any]) -> pd.DataFrame:
    """Return the rows of frozen features, a column for each measure at the last and best layer.

    Args:
        content: of ``starts.json``.
    """
    rows = []
    for row in content["frozen"]:
        flat = {key: row[key] for key in (*ROW, "seed")}
        for measure in MEASURES:
            flat[f"{measure} last"] = row[measure]["last"]
            flat[f"{measure} best"] = row[measure]["best"]
            flat[f"{measure} layer"] = row[measure]["layer"]
        rows.append(flat)
    return pd.DataFrame(rows)


def seconds_of(content: dict[str, Any], start: str, passes: int, size: int) -> float:
    """Return the processor time of a row, seconds, from the costs of an image.

    It holds the training, the bank's first rows, and reading the features of all photos once.
    """
    setting = content["setting"]
    costs = content["costs"]
    num_train = setting["train_images"]
    num_photos = num_train + setting["test_images"]
    reading = "features"
    if start == "histograms":
        reading = "histograms"
    elif start.startswith("published") or "continued" in start:
        # Images of another size cost in proportion to their pixels.
        reading = "published features"
    cost = costs[reading]
    training = costs.get(start, 0.0)
    if reading == "published features":
        cost *= (size / setting["published_size"]) ** 2
        training *= (size / setting["image_size"]) ** 2
    milliseconds = num_photos * cost
    if passes:
        milliseconds += num_train * (passes * training + cost)
        if "continued" in start:
            milliseconds += num_train * HEAD_PASSES * cost
    return milliseconds / 1000


def row_title(start: str, passes: int, size: int) -> str:
    """Return a row's name, such as ``NPID, 20 passes, 64 px``."""
    words = [LABELS[start]]
    if passes:
        words.append("1 pass" if passes == 1 else f"{passes} passes")
    return ", ".join([*words, f"{size} px"])


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


def in_order(rows: pd.DataFrame) -> list[tuple[tuple[str, int, int], pd.DataFrame]]:
    """Group rows by what their seeds share, in the order of ``LABELS``."""
    groups = {key: part for key, part in rows.groupby(ROW)}
    starts = list(LABELS)
    return sorted(groups.items(), key=lambda item: (starts.index(item[0][0]), *item[0][1:]))


def accuracy_of(seeds: pd.Series) -> str:
    """Return mean ± standard deviation; histograms and published weights depend on no seed."""
    return spread(seeds.drop_duplicates() if seeds.nunique() == 1 else seeds)


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


def questions(content: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Answer what a user asks: a difference of two rows, seed by seed.

    Returns:
        Questions with :func:`peers_report.paired_difference`; those whose rows are missing are
        left out.
    """
    frozen = frozen_rows(content)
    size = content["setting"]["image_size"]
    large = content["setting"]["published_size"]
    tuned = pd.DataFrame(content["fine_tuned"])

    def linear(start: str, passes: int, side: int = size, column: str = "linear best") -> pd.Series:
        is_row = (frozen["start"] == start) & (frozen["passes"] == passes)
        return frozen[is_row & (frozen["size"] == side)].set_index("seed")[column]

    def fine_tuned(start: str, passes: int, fraction: float) -> pd.Series:
        if tuned.empty:
            return pd.Series(dtype=float)
        is_row = (tuned["start"] == start) & (tuned["passes"] == passes)
        return tuned[is_row & (tuned["fraction"] == fraction)].set_index("seed")["top1"]

    answers = []

    def ask(question: str, first: pd.Series, second: pd.Series) -> None:
        if (first - second).dropna().size:
            answers.append((question, paired_difference(first, second)))

    passes = sorted({*frozen.loc[frozen["start"] == "pirl_jigsaw", "passes"]})
    for count in passes:
        pirl = linear("pirl_jigsaw", count)
        ask(
            f"PIRL, {count} passes: best layer − last layer",
            pirl,
            linear("pirl_jigsaw", count, column="linear last"),
        )
        ask(f"PIRL, {count} passes − histograms", pirl, linear("histograms", 0))
        ask(f"PIRL, {count} passes − untrained network, best layers", pirl, linear("random", 0))
        ask(f"PIRL − NPID, {count} passes", pirl, linear("npid", count))
        same_time = equal_time_passes(content, count)
        if same_time is not None:
            question = f"PIRL, {count} passes − NPID, {same_time} passes: the same time"
            ask(question, pirl, linear("npid", same_time))
        ask(f"PIRL: jigsaw − rotation, {count} passes", pirl, linear("pirl_rotation", count))
        ask(
            f"published weights, {large} px, frozen − PIRL, {count} passes",
            linear("published", 0, large),
            pirl,
        )
    for start in CONTINUED:
        own = frozen[frozen["start"] == start]
        for count, side in sorted({*zip(own["passes"], own["size"], strict=True)}):
            for measure, title in MEASURES.items():
                column = f"{measure} best"
                ask(
                    f"{LABELS[start]}, {count} passes − frozen, {side} px: {title}",
                    linear(start, count, side, column),
                    linear("published", 0, side, column),
                )
    for fraction in sorted({*tuned["fraction"]} if not tuned.empty else ()):
        percent = f"{100 * fraction:g} % of the labels"
        column = f"linear_{fraction} best"
        for start in ("npid", "pirl_rotation", "pirl_jigsaw"):
            for count in passes:
                trained = fine_tuned(start, count, fraction)
                ask(
                    f"{percent}, fine-tuned: {LABELS[start]}, {count} passes − random weights",
                    trained,
                    fine_tuned("random", 0, fraction),
                )
                ask(
                    f"{percent}, {LABELS[start]}, {count} passes: fine-tuned − linear, best layer",
                    trained,
                    linear(start, count, column=column),
                )
        for start in CONTINUED:
            for count in sorted({*tuned.loc[tuned["start"] == start, "passes"]}):
                ask(
                    f"{percent}, fine-tuned: {LABELS[start]}, {count} passes − published weights",
                    fine_tuned(start, count, fraction),
                    fine_tuned("published", 0, fraction),
                )
        ask(
            f"{percent}, published weights, {size} px: fine-tuned − linear, best layer",
            fine_tuned("published", 0, fraction),
            linear("published", 0, column=column),
        )
    return answers


def equal_time_passes(content: dict[str, Any], passes: int) -> int | None:
    """Return the passes of NPID's rows that take the time of so many of PIRL; None: none does."""
    costs = content["costs"]
    equal = passes * costs["pirl_jigsaw"] / costs["npid"]
    run = {row["passes"] for row in content["frozen"] if row["start"] == "npid"}
    nearest = min(run, key=lambda count: abs(count - equal), default=0)
    return nearest if abs(nearest - equal) < 0.1 * equal else None


def questions_table(contents: list[dict[str, Any]], rows: Sequence[str] = ()) -> str:
    """Return questions and their answers for each set, in points of linear top-1 unless said.

    Args:
        contents: of ``starts.json`` of each set.
        rows: the questions; none: all.
    """
    names = [content["setting"]["data"] for content in contents]
    answers = [dict(questions(content)) for content in contents]
    asked = [*dict.fromkeys(question for of_set in answers for question in of_set)]
    lines = [
        f"| difference, points: mean ± 95 % interval | {' | '.join(names)} |",
        "|---|" + "---|" * len(names),
    ]
    for question in [row for row in rows if row in asked] or asked:
        cells = [
            lead_words(of_set[question]).replace(" ", "\u00a0") if question in of_set else "–"
            for of_set in answers
        ]
        lines.append(f"| {' | '.join([question, *cells])} |")
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
