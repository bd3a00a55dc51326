"""Tables and figures of a comparison: ``python extra_scripts/claims/report.py FOLDER``.

Reads ``FOLDER/claims.json``, takes the verdicts again, and writes ``tables.md`` and the figures
beside it. Needs no images and no checkpoints.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from verdicts import COMPARISON, METHODS, SWEEPS, Runs, paper_layers, verdicts

from pirl_plugin.evaluation.published import LAYERS, published

METRICS = {"linear": "linear_top1", "best layer": "linear_best_top1", "kNN": "knn_top1"}
PANELS = {"linear_top1": "Linear, top-1 (%)", "knn_top1": "kNN, top-1 (%)"}
COLORS = dict(zip(METHODS, "0.5 C0 C3 C1 C6 C8 C2 k C4 C9".split(), strict=True))
DASHED = {"jigsaw": "--", "rotation": "--", "vissl_pirl": ":", "npidpp": "-."}
NOTES = COMPARISON["notes"]


def write_report(folder: Path, content: dict[str, Any]) -> None:
    """Write ``tables.md`` and the figures that there are runs for.

    Args:
        folder: where they go.
        content: of ``claims.json``, with its verdicts.
    """
    runs = Runs(content)
    parts = [_setting(content), _methods(runs), _claims(content["claims"])]
    parts += [_sweep_table(runs, name) for name in SWEEPS]
    text = "\n\n".join(part for part in parts if part)
    (folder / "tables.md").write_text(text + "\n", encoding="utf-8")
    matplotlib.rcParams["svg.hashsalt"] = "pirl"  # the same runs give the same bytes
    figures = {
        "accuracy_epochs": _curves(runs),
        "layers": _layers(runs),
        **{f"sweep_{name}": _sweep_figure(runs, name) for name in SWEEPS},
    }
    for name, figure in figures.items():
        if figure is not None:
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def _markdown(title: str, header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [[cell.replace("|", r"\|") for cell in line] for line in (header, *rows)]
    top, *below = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([f"## {title}", "", top, "|" + "---|" * len(header), *below])


def _setting(content: dict[str, Any]) -> str:
    setting, data = content["setting"], content["setting"]["data"]
    made: Counter[str] = Counter()
    for row in content["runs"]:
        about = row.get("made_with", {"hardware": row.get("hardware", "not recorded")})
        made[f"{about['hardware']}, {about.get('precision', 'precision not recorded')}"] += 1
    lines = [
        setting["about"],
        f"{data['name']}: {data['train_images']:,} training and {data['val_images']:,} test "
        f"images of {data['classes']} classes; chance is {100 / data['classes']:.1f} %",
        f"{setting['images_seen']:,} images seen ({setting['epochs']} epochs); a sweep's models "
        f"{setting['sweep_epochs']} epochs",
        *(f"`{name}`: {setting[key]}" for name, key in METRICS.items() if key in setting),
        f"`seconds` of pre-training: {setting['seconds']}",
        "hardware: " + "; ".join(f"{text} ({n} runs)" for text, n in made.most_common()),
        f"versions: {', '.join(map(' '.join, setting['versions'].items()))}, of the last command",
        f"`{setting['command']}`",
    ]
    by = "`extra_scripts/claims/report.py` writes this page from `claims.json`."
    return "\n".join(["# Measured", "", by, "", *(f"- {line}" for line in lines)])


def _methods(runs: Runs) -> str:
    rows = []
    for method, about in METHODS.items():
        if found := [*runs.main(method).values()]:
            seconds = {row["seconds"] for row in found if pd.notna(row["seconds"])}
            paper = published(*about["paper"])["ImageNet"] if about.get("paper") else ""
            rows.append([
                about["label"], str(len(found)), f"{found[0]['images_seen']:,}",
                _spread(seconds if len(seconds) == 1 else [row["seconds"] for row in found]),
                _spread(row["linear_top1"] for row in found),
                _spread(row["knn_top1"] for row in found), found[0]["best_layer"],
                _spread(row["linear_best_top1"] for row in found), str(paper),
            ])  # fmt: skip
    header = "method|seeds|images seen|seconds|linear|kNN|best layer|its linear".split("|")
    header.append("paper (ImageNet; PIRL: 800 epochs, with rotation 400)")
    return f"{_markdown('Methods', header, rows)}\n\n{NOTES['methods']}"


def _claims(claims: list[dict[str, Any]]) -> str:
    rows = []
    for claim in claims:
        notes = [claim["note"]] if claim.get("note") not in (None, NOTES["rivals"]) else []
        if "smallest_over" in claim:
            notes.append(f"smallest lead over {claim['smallest_over']}")
        rows.append([
            f"`{claim['id']}`: {'; '.join([claim['statement'], *notes])}", claim["source"],
            f"**{claim['verdict']}**" if claim["seeds"] else "not measured yet",
            _difference(claim, 2 if "top-1" in claim["unit"] else 3), str(len(claim["seeds"])),
            _difference(claim.get("by_best_layer")), _difference(claim.get("by_knn")),
        ])  # fmt: skip
    header = "claim|paper|verdict|difference ± standard error|seeds|best layer|kNN".split("|")
    title, table = _markdown("Claims", header, rows).split("\n\n", 1)
    return f"{title}\n\n{NOTES['claims']} {NOTES['rivals']}.\n\n{table}"


def _difference(found: dict[str, Any] | None, digits: int = 2) -> str:
    if not found or found["difference"] is None:
        return ""
    error = found["standard_error"]
    mean = f"{found['difference']:+.{digits}f}"
    return mean if error is None else f"{mean} ± {error:.{digits}f}"


def _spread(values: Iterable[float]) -> str:
    """Mean ± standard deviation."""
    numbers = pd.Series([*values], dtype=float).dropna()
    if numbers.empty:
        return ""
    places = 1 if numbers.iloc[0] < 100 else 0
    mean = f"{numbers.mean():,.{places}f}"
    return mean if len(numbers) == 1 else f"{mean} ± {numbers.std():.{places}f}"


def _label(value: float) -> str:
    return "9!" if value == 362_880 else f"{value:,}"


def _sweep_table(runs: Runs, name: str) -> str:
    """Of the seeds that have all values, so that means differ by the values alone."""
    sweep, columns = SWEEPS[name], {}
    for method in sweep["values"]:
        for title, metric in METRICS.items():
            table = runs.sweep(name, method, metric).dropna()
            columns[f"{METHODS[method]['label']}: {title}"] = table
    if all(table.empty for table in columns.values()):
        return ""
    rows = []
    for value in sweep["values"]["pirl_jigsaw"]:
        found = [table[value] if value in table else [] for table in columns.values()]
        seeds = "/".join(str(len(seeds)) for seeds in found[:: len(METRICS)] if len(seeds))
        rows.append([_label(value), seeds, *map(_spread, found)])
    return _markdown(sweep["axis"], [sweep["symbol"], "seeds", *columns], rows)


def _panels(titles: Iterable[str], xlabel: str, width: float = 10) -> tuple[Figure, list[Axes]]:
    titles = list(titles)
    figure = Figure(figsize=(width, 3.6), layout="constrained")
    panels = list(figure.subplots(1, len(titles), squeeze=False)[0])
    for axes, title in zip(panels, titles, strict=True):
        axes.set(xlabel=xlabel, ylabel=title)
        axes.grid(alpha=0.25)
    return figure, panels


def _line(axes: Axes, method: str, y: pd.DataFrame) -> None:
    """Draw means over seeds (rows), and a band from the least to the most."""
    x, color = [*y.columns], COLORS[method]
    seeds = f" ({len(y)} seeds)" if len(y) > 1 else ""
    label = f"{METHODS[method]['label']}{seeds}"
    axes.plot(x, y.mean(), color=color, ls=DASHED.get(method, "-"), marker=".", label=label)
    axes.fill_between(x, y.min(), y.max(), color=color, alpha=0.12, lw=0)


def _with_legend(figure: Figure, where: str = "outside right center") -> Figure:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc=where, frameon=False, fontsize=8)
    return figure


def _curves(runs: Runs) -> Figure | None:
    """Draw accuracy during training; the supervised network's, far above, is in the tables."""
    found = {method: [*runs.main(method).values()] for method in METHODS if method != "supervised"}
    found = {method: rows for method, rows in found.items() if rows}
    if not found:
        return None
    figure, panels = _panels(PANELS.values(), "Images seen (thousands)", 10.5)
    for axes, metric in zip(panels, PANELS, strict=True):
        for method, rows in found.items():
            if method == "random":
                mean = np.mean([row[metric] for row in rows])
                axes.axhline(mean, color=COLORS[method], lw=1, label=METHODS[method]["label"])
                continue
            points = [pd.DataFrame(row["points"]).set_index("images_seen") for row in rows]
            y = pd.DataFrame([frame[metric] for frame in points])
            y.columns = y.columns / 1e3
            _line(axes, method, y)
    return _with_legend(figure)


def _layers(runs: Runs) -> Figure | None:
    """Draw accuracy by layer at the end of training, and the paper's (Fig. 5)."""
    published_ = ("random", "npid", "pirl_jigsaw", "jigsaw", "supervised")
    found = {method: runs.layers(method) for method in (*published_, "npidpp")}
    if all(table.empty for table in found.values()):
        return None
    figure, (ours, theirs) = _panels(["Linear, top-1 (%)"] * 2, "Layer", 11)
    for method, table in found.items():
        if len(table):
            _line(ours, method, table)
    for method in published_:
        color, style = COLORS[method], DASHED.get(method, "-")
        theirs.plot(LAYERS, paper_layers(method), marker=".", color=color, ls=style)
    ours.set_title("Here", fontsize=10)
    theirs.set_title("Paper: ImageNet, ResNet-50; its NPID++ for NPID", fontsize=10)
    return _with_legend(figure)


def _sweep_figure(runs: Runs, name: str) -> Figure | None:
    """Draw a dot for each model, and lines of means over the seeds with all values."""
    sweep = SWEEPS[name]
    if runs.sweep(name, "pirl_jigsaw", "linear_top1").notna().any().sum() < 2:
        return None
    figure, panels = _panels(PANELS.values(), sweep["axis"], 9)
    for axes, metric in zip(panels, PANELS, strict=True):
        for method in sweep["values"]:
            table = runs.sweep(name, method, metric)
            for seed in table.index[table.notna().any(axis=1)]:
                axes.plot(table.loc[seed].dropna(), ".", color=COLORS[method])
            if len(whole := table.dropna()):
                _line(axes, method, whole)
        if name != "lambda":
            axes.set_xscale("log")
        values = sweep["values"]["pirl_jigsaw"]
        axes.set_xticks(values, [_label(value) for value in values])
        axes.set_xticks([], minor=True)
    if "paper_at" in sweep:
        panels[0].axvline(sweep["paper_at"], color="0.6", ls=":", lw=1)
    panels[0].set_title(sweep["paper"], fontsize=9, color="0.4")
    return _with_legend(figure, "outside lower center")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    found = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    found["claims"] = verdicts(found)
    write_report(folder, found)
