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
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator
from verdicts import COMPARISON, METHODS, SWEEPS, Runs, paper_layers, verdicts

from pirl_plugin.evaluation.published import LAYERS, published

METRICS = {"linear_top1": "linear", "linear_best_top1": "best layer", "knn_top1": "kNN"}
PANELS = {"linear_top1": "Linear, top-1 (%)", "knn_top1": "kNN, top-1 (%)"}
COLORS = dict(zip(METHODS, "0.5 C0 C3 C1 C6 C8 C2 k C4 C9".split(), strict=True))
DASHED = {"jigsaw": "--", "rotation": "--", "vissl_pirl": ":", "npidpp": "-."}
PAIRS = ("pirl_jigsaw", "jigsaw", "pirl_rotation", "rotation")  # whose distances are compared
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
        "accuracy_epochs": _curves(runs, "images_seen", "Images seen (thousands)", 1e3),
        "accuracy_time": _curves(runs, "seconds", "Seconds of pre-training", 1),
        "layers": _layers(runs),
        "invariance": _invariance(runs),
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
        with_ = row.get("made_with", {"hardware": row.get("hardware", "not recorded")})
        made[f"{with_['hardware']}, {with_.get('precision', 'precision not recorded')}"] += 1
    seconds = setting["seconds"]
    if cost := content.get("cost"):
        rounds = len(next(iter(cost["rounds"].values())))
        seconds = (
            f"of pre-training, by the cost of an image: the median of {rounds} short runs of each "
            f"method in turn ({cost['measured']}, {cost['hardware']}, {cost['precision']})"
        )
    lines = [
        setting["about"],
        f"{data['name']}: {data['train_images']:,} training and {data['val_images']:,} test "
        f"images of {data['classes']} classes; chance is {100 / data['classes']:.1f} %",
        f"{setting['images_seen']:,} images seen ({setting['epochs']} epochs); a sweep's models "
        f"{setting['sweep_epochs']} epochs",
        f"`linear`: {setting['linear_top1']}",
        f"`kNN`: {setting['knn_top1']}",
        f"`seconds`: {seconds}",
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
        for metric, title in METRICS.items():
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


def _figure(columns: int, width: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, 3.6), layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def _line(axes: Axes, method: str, x: Iterable[float], y: pd.DataFrame, **options: Any) -> None:
    """Means over seeds (rows), and a band from the least to the most."""
    x, color = [*x], COLORS[method]
    axes.plot(x, y.mean(), color=color, ls=DASHED.get(method, "-"), **options)
    if len(y) > 1:
        axes.fill_between(x, y.min(), y.max(), color=color, alpha=0.12, lw=0)


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)


def _curves(runs: Runs, axis: str, title: str, unit: float) -> Figure | None:
    """Accuracy during training; the supervised network, far above, is in the legend only."""
    found = {method: [*runs.main(method).values()] for method in METHODS}
    found = {method: rows for method, rows in found.items() if rows and pd.notna(rows[0][axis])}
    if not found:
        return None
    figure, panels = _figure(2, 10.5)
    for axes, (metric, name) in zip(panels, PANELS.items(), strict=True):
        random = pd.Series([row[metric] for row in found.get("random", [])], dtype=float)
        for method, rows in found.items():
            label = METHODS[method]["label"]
            if method == "random":
                axes.axhline(random.mean(), color=COLORS[method], lw=1, label="Random init.")
                continue
            if method == "supervised":
                top1 = [pd.Series([row[m] for row in rows]).mean() for m in PANELS]
                label = f"Supervised, not drawn:\nlinear {top1[0]:.1f}, kNN {top1[1]:.1f}"
                axes.plot([], [], " ", label=label)
                continue
            points = [pd.DataFrame(row["points"]) for row in rows]
            x = np.mean([frame[axis] for frame in points], axis=0) / unit
            y = pd.DataFrame([frame[metric].to_list() for frame in points])
            if len(random) and axis != "seconds":
                x = [0.0, *x]
                y.insert(0, "start", random.mean())
            seeds = f" ({len(rows)} seeds)" if len(rows) > 1 else ""
            _line(axes, method, x, y, marker=".", label=label + seeds)
        if axis == "seconds":  # one method takes several times as long as the others
            axes.set_xscale("log")
        axes.set(xlabel=title, ylabel=name)
        axes.grid(alpha=0.25)
    _legend(figure, panels[0])
    return figure


def _layers(runs: Runs) -> Figure | None:
    """Accuracy by layer at the end of training, and the paper's (Fig. 5)."""
    published_ = ("random", "npid", "pirl_jigsaw", "jigsaw", "supervised")
    found = {method: runs.layers(method) for method in (*published_, "npidpp")}
    if all(table.empty for table in found.values()):
        return None
    figure, (ours, theirs) = _figure(2, 11)
    for method, table in found.items():
        if len(table):
            _line(ours, method, LAYERS, table, marker="o", label=METHODS[method]["label"])
    for method in published_:
        theirs.plot(LAYERS, paper_layers(method), marker="o", color=COLORS[method],
                    ls=DASHED.get(method, "-"))  # fmt: skip
    titles = "Here", "Paper: ImageNet, ResNet-50; its NPID++ for NPID"
    for axes, title in zip((ours, theirs), titles, strict=True):
        axes.set_title(title, fontsize=10)
        axes.set_ylabel("Linear, top-1 (%)")
        axes.grid(alpha=0.25)
    _legend(figure, ours)
    return figure


def _invariance(runs: Runs) -> Figure | None:
    """Distribution of the distances between images and their transformed versions (Fig. 4)."""
    found = {
        m: [row["invariance"] for row in runs.main(m).values() if "invariance" in row]
        for m in PAIRS
    }
    if not any(found.values()):
        return None
    figure, (axes,) = _figure(1, 7.6)
    for method, several in found.items():
        if several:
            density = np.mean([one["density"] for one in several], axis=0)
            mean, std, other = (
                np.mean([one[key] for one in several]) for key in ("mean", "std", "different_mean")
            )
            space = "embeddings" if "negatives" in METHODS[method] else "pooled features"
            label = f"{METHODS[method]['label']}, {space}:\n{mean:.2f} ± {std:.2f}; "
            label += f"of different images {other:.2f}"
            edges = np.linspace(0, 2, len(density) + 1)
            axes.stairs(
                density, edges, color=COLORS[method], ls=DASHED.get(method, "-"), label=label
            )
            axes.axvline(other, color=COLORS[method], ls=":", lw=1)
    axes.set_xlabel("l2 distance of unit vectors, image and transformed image")
    axes.set_ylabel("Density; dotted: mean of different images")
    figure.legend(loc="outside right center", frameon=False, fontsize=8)
    return figure


def _sweep_figure(runs: Runs, name: str) -> Figure | None:
    """A dot a model, lines of means over the seeds with all values, thin for the best layer."""
    sweep = SWEEPS[name]
    methods, values = [*sweep["values"]], sweep["values"]["pirl_jigsaw"]
    if runs.sweep(name, "pirl_jigsaw", "linear_top1").notna().any().sum() < 2:
        return None
    figure, panels = _figure(2, 9)
    for axes, (metric, title) in zip(panels, PANELS.items(), strict=True):
        for method in methods:
            table = runs.sweep(name, method, metric)
            whole, color, style = table.dropna(), COLORS[method], DASHED.get(method, "-")
            for seed in table.index[table.notna().any(axis=1)]:
                axes.plot(table.loc[seed].dropna(), ".", color=color)
            if len(whole):
                label = METHODS[method]["label"]
                seeds = f" ({len(whole)} seeds)" if len(whole) > 1 else ""
                axes.plot(whole.mean(), color=color, ls=style, label=label + seeds)
                if metric == "linear_top1":
                    best = runs.sweep(name, method, "linear_best_top1").dropna().mean()
                    axes.plot(best, color=color, lw=0.8, ls=style, marker="_",
                              label=f"{label}, best layer")  # fmt: skip
        if name != "lambda":
            axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(values))
        axes.xaxis.set_major_formatter(FixedFormatter([_label(value) for value in values]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set(xlabel=sweep["axis"], ylabel=title)
        axes.grid(alpha=0.25)
    if "paper_at" in sweep:
        panels[0].axvline(sweep["paper_at"], color="0.6", ls=":", lw=1)
    panels[0].set_title(sweep["paper"], fontsize=9, color="0.4")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), frameon=False,
                  fontsize=8)  # fmt: skip
    return figure


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    found = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    found["claims"] = verdicts(found)
    write_report(folder, found)
