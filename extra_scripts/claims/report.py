"""Write a comparison's tables and figures: ``python extra_scripts/claims/report.py FOLDER``.

Reads ``FOLDER/claims.json``, recomputes the verdicts, and writes ``tables.md`` and the figures
beside it. Needs no images and no checkpoints.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from report_files import markdown_row, markdown_table, write_files
from verdicts import COMPARISON, LAYERS, METHODS, SWEEPS, Runs, curve, verdicts

METRICS = {"linear": "linear_top1", "best layer": "linear_best_top1", "kNN": "knn_top1"}
PANELS = {"linear_top1": "Linear, top-1 (%)", "knn_top1": "kNN, top-1 (%)"}
COLORS = dict(zip(METHODS, "0.5 C0 C3 C1 C6 C8 C2 k C4 C9".split(), strict=True))
DASHED = {"jigsaw": "--", "rotation": "--", "vissl_pirl": ":", "npidpp": "-."}
NOTES = COMPARISON["notes"]
PUBLISHED = Path(__file__).parents[1] / "paper" / "published.json"
Panel = tuple[str, dict[str, pd.DataFrame]]  # label of the vertical axis, method → seeds × x


def write_report(folder: Path, content: dict[str, Any]) -> None:
    """Write ``tables.md`` and the figures for which there are runs.

    Args:
        folder: output folder.
        content: content of ``claims.json``, with its verdicts.
    """
    runs = Runs(content)
    sweeps = [table for name in SWEEPS if (table := _sweep_table(runs, name))]
    page = "\n\n".join([_page(runs, content), *sweeps])
    figures = {"accuracy_epochs": _curves(runs), "layers": _layers(runs)}
    figures |= {f"sweep_{name}": _sweep_figure(runs, name) for name in SWEEPS}
    drawn = {name: figure for name, figure in figures.items() if figure is not None}
    write_files(folder, "tables", page, drawn)


def _page(runs: Runs, content: dict[str, Any]) -> str:
    """Return the comparison's setting, methods and claims."""
    setting = content["setting"]
    machines = [row.get("made_with", row) for row in content["runs"]]
    hardware = Counter(
        f"{machine['hardware']}, {machine.get('precision', 'precision not recorded')}"
        for machine in machines
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


def _lines(rows: Iterable[Sequence[str]]) -> str:
    """Return rows of a Markdown table, each on a new line."""
    return "".join(f"\n{markdown_row(row)}" for row in rows)


def _method_rows(runs: Runs) -> Iterable[list[str]]:
    for method, settings in METHODS.items():
        rows = runs.main(method)
        if rows.empty:
            continue
        paper = _published(*settings["paper"])["ImageNet"] if settings.get("paper") else ""
        seconds = rows["seconds"]
        if seconds.nunique() == 1:  # a single run, whatever the number of rows
            seconds = seconds.unique()
        yield [
            settings["label"],
            str(len(rows)),
            f"{rows.iloc[0]['images_seen']:,}",
            _spread(seconds),
            _spread(rows["linear_top1"]),
            _spread(rows["knn_top1"]),
            rows.iloc[0]["best_layer"],
            _spread(rows["linear_best_top1"]),
            str(paper),
        ]


def _published(number: int, method: str) -> dict[str, float | None]:
    """Return a row from one of the paper's tables: column → percent."""
    tables = json.loads(PUBLISHED.read_text(encoding="utf-8"))["tables"]
    (table,) = [table for table in tables if table["number"] == number]
    return dict(zip(table["columns"], table["rows"][method], strict=True))


def _claim_row(claim: dict[str, Any]) -> list[str]:
    parts = [claim["statement"]]
    if claim.get("note") not in (None, NOTES["rivals"]):
        parts.append(claim["note"])
    if "smallest_over" in claim:
        parts.append(f"smallest lead over {claim['smallest_over']}")
    verdict = f"**{claim['verdict']}**" if claim["seeds"] else "not measured yet"
    return [
        f"`{claim['id']}`: {'; '.join(parts)}",
        claim["source"],
        verdict,
        _difference(claim, 2 if "top-1" in claim["unit"] else 3),
        str(len(claim["seeds"])),
        _difference(claim.get("by_best_layer", {})),
        _difference(claim.get("by_knn", {})),
    ]


def _difference(measured: dict[str, Any], digits: int = 2) -> str:
    mean = measured.get("difference")
    error = measured.get("standard_error")
    if mean is None:
        return ""
    if error is None:
        return f"{mean:+.{digits}f}"
    return f"{mean:+.{digits}f} ± {error:.{digits}f}"


def _spread(values: Iterable[float]) -> str:
    """Format mean ± standard deviation."""
    numbers = pd.Series([*values], dtype=float).dropna()
    if numbers.empty:
        return ""
    decimals = 1 if numbers.iloc[0] < 100 else 0
    mean = f"{numbers.mean():,.{decimals}f}"
    return mean if len(numbers) == 1 else f"{mean} ± {numbers.std():.{decimals}f}"


def _label(value: float) -> str:
    return "9!" if value == 362_880 else f"{value:,}"


def _sweep_table(runs: Runs, name: str) -> str:
    """Tabulate a sweep over the seeds that have all values, so that means are comparable."""
    sweep = SWEEPS[name]
    columns = {}
    for method in sweep["values"]:
        for title, metric in METRICS.items():
            table = runs.sweep(name, method, metric).dropna()
            columns[f"{METHODS[method]['label']}: {title}"] = table
    if all(table.empty for table in columns.values()):
        return ""
    rows = []
    for value in sweep["values"]["pirl_jigsaw"]:
        cells = [table.get(value, []) for table in columns.values()]
        # A method's metrics have the same seeds.
        seeds = "/".join(str(len(seeds)) for seeds in cells[:: len(METRICS)] if len(seeds))
        rows.append([_label(value), seeds, *map(_spread, cells)])
    header = [sweep["symbol"], "seeds", *columns]
    return f"## {sweep['axis']}\n\n{markdown_table(header, rows)}"


def _figure(panels: Iterable[Panel], xlabel: str, width: float, legend: str) -> Figure:
    """Draw two panels: means over seeds, with bands from minimum to maximum."""
    figure = Figure(figsize=(width, 3.6), layout="constrained")
    for axes, (ylabel, tables) in zip(figure.subplots(1, 2), panels, strict=True):
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.grid(alpha=0.25)
        for method, y in tables.items():
            color = COLORS[method]
            label = METHODS[method]["label"]
            if [*y] == [0]:  # an untrained network, independent of x
                axes.axhline(y[0].mean(), color=color, lw=1, label=label)
            elif len(y):
                label += f" ({len(y)} seeds)" if len(y) > 1 else ""
                look = {"color": color, "ls": DASHED.get(method, "-"), "marker": "."}
                axes.plot(y.columns, y.mean(), label=label, **look)
                if len(y) > 1:
                    axes.fill_between(y.columns, y.min(), y.max(), color=color, alpha=0.12, lw=0)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    location: Any = f"outside {legend}"
    figure.legend(handles, labels, loc=location, frameon=False, fontsize=8)
    return figure


def _curves(runs: Runs) -> Figure | None:
    """Draw accuracy during training, without the supervised network, which is far above."""
    methods = [method for method in METHODS if method != "supervised"]
    curves = {m: [curve(run) for _, run in runs.main(m).iterrows()] for m in methods}
    if not any(curves.values()):
        return None
    panels = []
    for metric, title in PANELS.items():
        tables = {m: pd.DataFrame([c[metric] for c in curves[m]]) for m in methods}
        panels.append((title, tables))
    return _figure(panels, "Images seen (thousands)", 10.5, "right center")


def _layers(runs: Runs) -> Figure | None:
    """Draw accuracy by layer after training, and the paper's (Fig. 5)."""
    columns = {f"ImageNet {layer}": layer for layer in LAYERS}
    paper = {}
    for method, row in COMPARISON["paper_layers"].items():
        table = pd.DataFrame([_published(7, row)]).rename(columns=columns)
        paper[method] = table[[*LAYERS]]
    measured = {method: runs.main(method)[[*LAYERS]] for method in (*paper, "npidpp")}
    if all(table.empty for table in measured.values()):
        return None
    panels = [(PANELS["linear_top1"], measured), (PANELS["linear_top1"], paper)]
    figure = _figure(panels, "Layer", 11, "right center")
    figure.axes[0].set_title("Here", fontsize=10)
    figure.axes[1].set_title("Paper: ImageNet, ResNet-50; its NPID++ for NPID", fontsize=10)
    return figure


def _sweep_figure(runs: Runs, name: str) -> Figure | None:
    """Draw a dot per model, and lines for means over the seeds that have all values."""
    sweep = SWEEPS[name]
    values = sweep["values"]["pirl_jigsaw"]
    if runs.sweep(name, "pirl_jigsaw", "linear_top1").notna().any().sum() < 2:
        return None
    panels = []  # lines for the seeds that have all values
    dots = []
    for metric, title in PANELS.items():
        tables = {method: runs.sweep(name, method, metric) for method in sweep["values"]}
        panels.append((title, {method: table.dropna() for method, table in tables.items()}))
        dots.append(tables)
    figure = _figure(panels, sweep["axis"], 9, "lower center")
    for axes, tables in zip(figure.axes, dots, strict=True):
        for method, table in tables.items():
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
    content = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    content["claims"] = verdicts(content)
    write_report(folder, content)
