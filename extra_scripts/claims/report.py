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
import pandas as pd
from matplotlib.figure import Figure
from verdicts import COMPARISON, METHODS, SWEEPS, Runs, curve, verdicts

from pirl_plugin.evaluation.published import LAYERS, published

METRICS = {"linear": "linear_top1", "best layer": "linear_best_top1", "kNN": "knn_top1"}
PANELS = {"linear_top1": "Linear, top-1 (%)", "knn_top1": "kNN, top-1 (%)"}
COLORS = dict(zip(METHODS, "0.5 C0 C3 C1 C6 C8 C2 k C4 C9".split(), strict=True))
DASHED = {"jigsaw": "--", "rotation": "--", "vissl_pirl": ":", "npidpp": "-."}
NOTES = COMPARISON["notes"]
Panel = tuple[str, dict[str, pd.DataFrame]]  # the vertical axis's label, method → seeds × x


def write_report(folder: Path, content: dict[str, Any]) -> None:
    """Write ``tables.md`` and the figures that there are runs for.

    Args:
        folder: where they go.
        content: of ``claims.json``, with its verdicts.
    """
    runs = Runs(content)
    sweeps = [table for name in SWEEPS if (table := _sweep_table(runs, name))]
    page = "\n\n".join([_page(runs, content), *sweeps])
    (folder / "tables.md").write_text(page + "\n", encoding="utf-8")
    matplotlib.rcParams["svg.hashsalt"] = "pirl"  # the same runs give the same bytes
    figures = {"accuracy_epochs": _curves(runs), "layers": _layers(runs)}
    figures |= {f"sweep_{name}": _sweep_figure(runs, name) for name in SWEEPS}
    for name, figure in figures.items():
        if figure is not None:
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def _page(runs: Runs, content: dict[str, Any]) -> str:
    """The comparison's setting, methods and claims."""
    setting = content["setting"]
    made = [row.get("made_with", row) for row in content["runs"]]
    hardware = Counter(
        f"{row['hardware']}, {row.get('precision', 'precision not recorded')}" for row in made
    )
    values = {
        **setting,
        "notes": NOTES,
        "chance": 100 / setting["data"]["classes"],
        "hardware": "; ".join(f"{text} ({n} runs)" for text, n in hardware.most_common()),
        "versions": ", ".join(map(" ".join, setting["versions"].items())),
        "method_rows": _lines(_method_rows(runs)),
        "claim_rows": _lines(map(_claim_row, content["claims"])),
    }
    return COMPARISON["page"].strip().format(**values)


def _lines(rows: Iterable[Iterable[str]]) -> str:
    """Rows of a Markdown table, each on a new line."""
    escaped = ((cell.replace("|", r"\|") for cell in row) for row in rows)
    return "".join(f"\n| {' | '.join(row)} |" for row in escaped)


def _method_rows(runs: Runs) -> Iterable[list[str]]:
    for method, about in METHODS.items():
        found = runs.main(method)
        if found.empty:
            continue
        seen, best = found.iloc[0][["images_seen", "best_layer"]]
        paper = published(*about["paper"])["ImageNet"] if about.get("paper") else ""
        seconds = found["seconds"]
        cells = [about["label"], str(len(found)), f"{seen:,}"]
        cells.append(_spread(seconds.unique() if seconds.nunique() == 1 else seconds))
        cells += [_spread(found["linear_top1"]), _spread(found["knn_top1"]), best]
        yield [*cells, _spread(found["linear_best_top1"]), str(paper)]


def _claim_row(claim: dict[str, Any]) -> list[str]:
    parts = [claim["statement"]]
    if claim.get("note") not in (None, NOTES["rivals"]):
        parts.append(claim["note"])
    if "smallest_over" in claim:
        parts.append(f"smallest lead over {claim['smallest_over']}")
    verdict = f"**{claim['verdict']}**" if claim["seeds"] else "not measured yet"
    measured = _difference(claim, 2 if "top-1" in claim["unit"] else 3)
    others = [_difference(claim.get(key, {})) for key in ("by_best_layer", "by_knn")]
    about = [f"`{claim['id']}`: {'; '.join(parts)}", claim["source"], verdict]
    return [*about, measured, str(len(claim["seeds"])), *others]


def _difference(found: dict[str, Any], digits: int = 2) -> str:
    mean, error = found.get("difference"), found.get("standard_error")
    if mean is None:
        return ""
    return f"{mean:+.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


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
        found = [table.get(value, []) for table in columns.values()]
        seeds = "/".join(str(len(seeds)) for seeds in found[:: len(METRICS)] if len(seeds))
        rows.append([_label(value), seeds, *map(_spread, found)])
    header = [sweep["symbol"], "seeds", *columns]
    return f"## {sweep['axis']}\n{_lines([header])}\n|{'---|' * len(header)}{_lines(rows)}"


def _figure(panels: Iterable[Panel], xlabel: str, width: float, legend: str) -> Figure:
    """Draw two panels: means over seeds, and bands from the least to the most."""
    figure = Figure(figsize=(width, 3.6), layout="constrained")
    for axes, (ylabel, tables) in zip(figure.subplots(1, 2), panels, strict=True):
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.grid(alpha=0.25)
        for method, y in tables.items():
            color, label = COLORS[method], METHODS[method]["label"]
            if [*y] == [0]:  # an untrained network's, whatever the x
                axes.axhline(y[0].mean(), color=color, lw=1, label=label)
            elif len(y):
                label += f" ({len(y)} seeds)" if len(y) > 1 else ""
                look = {"color": color, "ls": DASHED.get(method, "-"), "marker": "."}
                axes.plot(y.columns, y.mean(), label=label, **look)
                if len(y) > 1:
                    axes.fill_between(y.columns, y.min(), y.max(), color=color, alpha=0.12, lw=0)
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc=f"outside {legend}", frameon=False, fontsize=8)
    return figure


def _curves(runs: Runs) -> Figure | None:
    """Draw accuracy during training; the supervised network's, far above, is in the tables."""
    shown = [method for method in METHODS if method != "supervised"]
    curves = {m: [curve(run) for _, run in runs.main(m).iterrows()] for m in shown}
    if not any(curves.values()):
        return None
    panels = [
        (title, {m: pd.DataFrame([c[metric] for c in found]) for m, found in curves.items()})
        for metric, title in PANELS.items()
    ]
    return _figure(panels, "Images seen (thousands)", 10.5, "right center")


def _layers(runs: Runs) -> Figure | None:
    """Draw accuracy by layer at the end of training, and the paper's (Fig. 5)."""
    table7 = {m: pd.DataFrame([published(7, row)]) for m, row in COMPARISON["paper_layers"].items()}
    columns = {f"ImageNet {layer}": layer for layer in LAYERS}
    theirs = {m: row.rename(columns=columns)[[*LAYERS]] for m, row in table7.items()}
    ours = {method: runs.main(method)[[*LAYERS]] for method in (*theirs, "npidpp")}
    if all(table.empty for table in ours.values()):
        return None
    panels = [(PANELS["linear_top1"], tables) for tables in (ours, theirs)]
    figure = _figure(panels, "Layer", 11, "right center")
    figure.axes[0].set_title("Here", fontsize=10)
    figure.axes[1].set_title("Paper: ImageNet, ResNet-50; its NPID++ for NPID", fontsize=10)
    return figure


def _sweep_figure(runs: Runs, name: str) -> Figure | None:
    """Draw a dot for each model, and lines of means over the seeds with all values."""
    sweep = SWEEPS[name]
    values = sweep["values"]["pirl_jigsaw"]
    if runs.sweep(name, "pirl_jigsaw", "linear_top1").notna().any().sum() < 2:
        return None
    tables = [{m: runs.sweep(name, m, metric) for m in sweep["values"]} for metric in PANELS]
    whole = [{method: table.dropna() for method, table in found.items()} for found in tables]
    panels = zip(PANELS.values(), whole, strict=True)
    figure = _figure(panels, sweep["axis"], 9, "lower center")
    for axes, found in zip(figure.axes, tables, strict=True):
        for method, table in found.items():
            axes.plot(table.columns, table.T, ".", color=COLORS[method])
        axes.set_xscale("linear" if name == "lambda" else "log")
        axes.set_xticks(values, [_label(value) for value in values])
        axes.set_xticks([], minor=True)
    if "paper_at" in sweep:
        figure.axes[0].axvline(sweep["paper_at"], color="0.6", ls=":", lw=1)
    figure.axes[0].set_title(sweep["paper"], fontsize=9, color="0.4")
    return figure


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    found = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    found["claims"] = verdicts(found)
    write_report(folder, found)
