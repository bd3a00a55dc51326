"""The effect of λ, of the permutations or of the negatives (Sec. 4): runs, table, figure.

A model is two runs: pre-training and linear benchmark. What is finished is not run again, so the
same command resumes.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pirl_plugin.evaluation.linear_run import final_checkpoint, linear_top1
from pirl_plugin.files import claim_folder, write_json, write_text
from pirl_plugin.quickstart.run import (
    Data,
    find_data,
    quick_epochs,
    quick_linear,
    quick_negatives,
    run_host,
)
from pirl_plugin.settings import quoted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

NUM_ORDERS = 362_880  # 9!
_POWERS_OF_TEN = (10, 100, 1_000, 10_000)
_CLASSIFIER = range(2, 10_001)  # |T| of the jigsaw classifier, which has an output for each


@dataclass(frozen=True)
class Sweep:
    """One sweep.

    Attributes:
        axis: name of the swept value.
        key: the Hydra key that sets it; "++" where a config need not name it.
        values: method → the paper's values.
    """

    axis: str
    key: str
    values: dict[str, tuple[float, ...]]


SWEEPS = {
    "lambda": Sweep(
        "λ (weight of the invariance term)",  # Eq. 5
        "config.LOSS.pirl_loss.lambda_invariance",
        {"PIRL": (0, 0.25, 0.5, 0.75, 1)},
    ),
    "permutations": Sweep(
        "Number of permutations",
        "++config.DATA.TRAIN.VIEWS.num_permutations",
        {"PIRL": (1, *_POWERS_OF_TEN, NUM_ORDERS), "Jigsaw": _POWERS_OF_TEN},
    ),
    "negatives": Sweep(
        "Number of negatives",
        "config.LOSS.pirl_loss.num_negatives",
        {"PIRL": tuple(2**power for power in range(6, 16))},
    ),
}
_CONFIGS = {
    ("paper", "PIRL"): "pretrain/pirl/jigsaw_8node",
    ("paper", "Jigsaw"): "pretrain/pirl/jigsaw_baseline_8node",
    ("quick", "PIRL"): "pretrain/pirl/quick_jigsaw",
    ("quick", "Jigsaw"): "pretrain/pirl/quick_jigsaw_baseline",
}


def points(name: str, chosen: Sequence[float] | None = None) -> list[tuple[str, float]]:
    """Return (method, value) of each model of a sweep: of the chosen values, or the paper's.

    Example:
        >>> points("permutations", [1, 10])
        [('PIRL', 1), ('PIRL', 10), ('Jigsaw', 10)]
    """
    found = []
    for method, values in SWEEPS[name].values.items():
        for value in values if chosen is None else sorted(set(chosen)):
            if method == "PIRL" or value in _CLASSIFIER:
                found.append((method, int(value) if float(value).is_integer() else value))
    return found


def pretraining(options: argparse.Namespace, data: Data, method: str, value: float) -> list[str]:
    """Return the overrides of a model's pre-training."""
    quick = options.scale == "quick"
    ours = [
        f"config={_CONFIGS[options.scale, method]}",
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(data.train)}]",
    ]
    if quick:
        ours.append(f"config.OPTIMIZER.num_epochs={quick_epochs(data)}")
    if method == "PIRL":
        ours.append(quick_negatives(data) if quick else "+config/pirl/epochs=analysis_400")
    given = [o for o in options.overrides if method == "PIRL" or "pirl_loss" not in o]
    return _merged(ours, [*given, f"{SWEEPS[options.name].key}={value}"])


def linear_benchmark(options: argparse.Namespace, data: Data, checkpoint: Path) -> list[str]:
    """Return the overrides of a model's linear benchmark."""
    ours = quick_linear(data, checkpoint)
    if options.scale == "paper":
        ours = [o for o in ours if "NUM_CLASSES" not in o]
        ours[0] = "config=benchmark/pirl/linear_imagenet1k"
    return _merged(ours, options.linear)


def _merged(ours: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return our overrides without those that are given too: Hydra refuses a group twice."""
    keys = {override.partition("=")[0].lstrip("+~") for override in given}
    return [*(o for o in ours if o.partition("=")[0].lstrip("+~") not in keys), *given]


def run_sweep(options: argparse.Namespace) -> None:
    """Run what is not finished, and write the table and the figure after each model.

    Args:
        options: ``name``, ``data``, ``out``, ``scale``, ``values``, ``overrides`` and ``linear``,
            as of the command.

    Raises:
        ValueError: options that cannot be used, or ``out`` holds another sweep.
        RuntimeError: a run failed.
    """
    data = find_data(options.data)
    if data.val is None:
        raise ValueError(f"--data = {options.data}: expected train/CLASS/* and val/CLASS/*")
    about = {
        "scale": options.scale,
        "data": str(options.data),
        "pre-training": shlex.join(options.overrides),
        "linear": shlex.join(options.linear),
    }
    claim_folder(options.out, {"sweep": options.name, **about})
    for method, value in points(options.name, options.values):
        _run_model(options, data, method, value)
        table = write_results(options.out, options.name, _results(options), about)
    print(f"\n{table}\nIn {options.out}: results.md, results.json, figure.png", flush=True)


def _results(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the accuracies of the models in the folder, those of earlier calls too."""
    rows = []
    for method in SWEEPS[options.name].values:
        folders = options.out.glob(f"{method.lower()}_*")
        for value, folder in sorted((float(f.name.partition("_")[2]), f) for f in folders):
            top1 = _top1(folder / "linear")
            best, percent = max(top1.items(), key=lambda item: item[1], default=(None, None))
            rows.append({"method": method, "value": int(value) if value.is_integer() else value,
                         "top1": top1, "best_layer": best, "best_top1": percent})  # fmt: skip
    return rows


def _run_model(options: argparse.Namespace, data: Data, method: str, value: float) -> None:
    """Pre-train and measure one model in ``OUT/METHOD_VALUE``, where this is not finished."""
    folder = options.out / f"{method.lower()}_{value}"
    title = f"{method}, {SWEEPS[options.name].axis} = {label(value)}"
    # At the paper's scale a machine has several processes, whose work is on GPUs.
    threads = torch.get_num_threads() if options.scale == "quick" else 1
    if final_checkpoint(folder / "pretrain") is None:
        overrides = pretraining(options, data, method, value)
        run_host(overrides, folder / "pretrain", f"{title}: pre-training", threads)
    checkpoint = final_checkpoint(folder / "pretrain")
    if checkpoint is None:
        raise RuntimeError(f"{title}: the pre-training ended unfinished: see {folder}")
    if not _top1(folder / "linear"):
        overrides = linear_benchmark(options, data, checkpoint)
        run_host(overrides, folder / "linear", f"{title}: linear", threads)


def _top1(folder: Path) -> dict[str, float]:
    """Return layer → percent of a linear benchmark; nothing of one that is not finished."""
    try:
        return linear_top1(folder)
    except (ValueError, OSError):
        return {}


def write_results(
    out: Path, name: str, results: list[dict[str, Any]], settings: dict[str, str]
) -> str:
    """Write ``results.md``, ``results.json`` and ``figure.png``; returns the table.

    Args:
        out: the folder.
        name: of the sweep.
        results: ``method``, ``value``, ``top1`` (layer → percent, empty before it is measured),
            ``best_layer`` and ``best_top1`` (or None) of each model.
        settings: of the runs.
    """
    from matplotlib.figure import Figure

    sweep = SWEEPS[name]
    columns: dict[str, dict[float, float]] = {}
    for row in results:
        column = columns.setdefault(f"{row['method']}, linear top-1, %", {})
        if row["best_top1"] is not None:
            column[row["value"]] = row["best_top1"]
    values = sorted({row["value"] for row in results})
    lines = [f"| {' | '.join([sweep.axis, *columns])} |"]
    lines.append("|---" * (1 + len(columns)) + "|")
    for value in values:
        cells = (f"{column[value]:.1f}" if value in column else "" for column in columns.values())
        lines.append(f"| {' | '.join([label(value), *cells])} |")
    lines += ["", "The best layer of each model.", ""]
    lines += [f"- {key}: {text}" for key, text in settings.items() if text]
    table = "\n".join(lines) + "\n"
    write_text(out / "results.md", table)
    write_json(out / "results.json", {"sweep": name, "settings": settings, "results": results})

    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    axes = figure.subplots()
    for title, column in columns.items():
        axes.plot(sorted(column), [column[value] for value in sorted(column)], "o-", label=title)
    if name != "lambda":
        axes.set_xscale("log")
    axes.set_xticks(values, [label(value) for value in values], fontsize=8)
    axes.set_xticks([], minor=True)
    axes.set(xlabel=sweep.axis, ylabel="linear top-1, %")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(out / "figure.png", dpi=200)
    return table


def label(value: float) -> str:
    """Return a value as people read it: ``0.25``, ``10,000``, ``9!``."""
    return "9!" if value == NUM_ORDERS else f"{value:,}"
