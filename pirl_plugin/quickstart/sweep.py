"""The effect of λ, of the permutations or of the negatives (Sec. 4): runs, table, figure.

A model needs two runs: pre-training and linear benchmark. Finished runs are skipped, so the same
command resumes a sweep.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pirl_plugin.evaluation.linear_run import final_checkpoint, linear_accuracy
from pirl_plugin.failures import Refused
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


@dataclass(frozen=True)
class Sweep:
    """One sweep.

    Attributes:
        method: the trained method.
        axis: name of the swept value.
        key: the Hydra key of the value; with "++" if the config may not have the key.
        values: the paper's values.
    """

    method: str
    axis: str
    key: str
    values: tuple[float, ...]


_PERMUTATIONS = ("Number of permutations", "++config.DATA.TRAIN.VIEWS.num_permutations")
SWEEPS = {
    "lambda": Sweep(
        "PIRL",
        "λ (weight of the invariance term)",  # Eq. 5
        "config.LOSS.pirl_loss.lambda_invariance",
        (0, 0.25, 0.5, 0.75, 1),
    ),
    "permutations": Sweep("PIRL", *_PERMUTATIONS, (1, 10, 100, 1_000, 10_000, 362_880)),
    "jigsaw_permutations": Sweep("Jigsaw", *_PERMUTATIONS, (10, 100, 1_000, 10_000)),
    "negatives": Sweep(
        "PIRL",
        "Number of negatives",
        "config.LOSS.pirl_loss.num_negatives",
        tuple(2**power for power in range(6, 16)),
    ),
}
_CONFIGS = {
    ("paper", "PIRL"): "pretrain/pirl/jigsaw_8node",
    ("paper", "Jigsaw"): "pretrain/pirl/jigsaw_baseline_8node",
    ("quick", "PIRL"): "pretrain/pirl/quick_jigsaw",
    ("quick", "Jigsaw"): "pretrain/pirl/quick_jigsaw_baseline",
}


def pretraining(options: argparse.Namespace, data: Data, value: float) -> list[str]:
    """Return the overrides of a model's pre-training."""
    sweep, quick = SWEEPS[options.name], options.scale == "quick"
    ours = [
        f"config={_CONFIGS[options.scale, sweep.method]}",
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(data.train)}]",
    ]
    if quick:
        ours.append(f"config.OPTIMIZER.num_epochs={quick_epochs(data)}")
    if sweep.method == "PIRL":
        ours.append(quick_negatives(data) if quick else "+config/pirl/epochs=analysis_400")
    return _merged(ours, [*options.overrides, f"{sweep.key}={value}"])


def linear_benchmark(options: argparse.Namespace, data: Data, checkpoint: Path) -> list[str]:
    """Return the overrides of a model's linear benchmark."""
    ours = quick_linear(data, checkpoint)
    if options.scale == "paper":
        ours = [o for o in ours if "NUM_CLASSES" not in o]
        ours[0] = "config=benchmark/pirl/linear_imagenet1k"
    return _merged(ours, options.linear)


def _merged(ours: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return our overrides and the given ones; a given one replaces ours with the same key."""
    keys = {override.partition("=")[0].lstrip("+~") for override in given}
    return [*(o for o in ours if o.partition("=")[0].lstrip("+~") not in keys), *given]


def run_sweep(options: argparse.Namespace) -> None:
    """Run the unfinished models, and write the table and the figure after each model.

    Args:
        options: the command's ``name``, ``data``, ``out``, ``scale``, ``values``, ``overrides``
            and ``linear``.

    Raises:
        ValueError: the options cannot be used, or ``out`` holds another sweep.
        RuntimeError: a run failed.
    """
    data = find_data(options.data)
    if data.val is None:
        raise Refused(f"--data = {options.data}: expected train/CLASS/* and val/CLASS/*")
    about = {
        "scale": options.scale,
        "data": str(options.data),
        "pre-training": shlex.join(options.overrides),
        "linear": shlex.join(options.linear),
    }
    claim_folder(options.out, {"sweep": options.name, **about})
    for value in sorted(set(options.values or SWEEPS[options.name].values)):
        _run_model(options, data, _plain(value))
        table = write_results(options.out, options.name, _results(options), about)
    print(f"\n{table}\nIn {options.out}: results.md, results.json, figure.png", flush=True)


def _results(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the accuracies of all models in the folder, also from earlier calls."""
    method, rows = SWEEPS[options.name].method, []
    folders = options.out.glob(f"{method.lower()}_*")
    for value, folder in sorted((float(f.name.partition("_")[2]), f) for f in folders):
        top1 = _top1(folder / "linear")
        best, percent = max(top1.items(), key=lambda item: item[1], default=(None, None))
        rows.append({"method": method, "value": _plain(value), "top1": top1, "best_layer": best,
                     "best_top1": percent})  # fmt: skip
    return rows


def _plain(value: float) -> float:
    return int(value) if float(value).is_integer() else value


def _run_model(options: argparse.Namespace, data: Data, value: float) -> None:
    """Pre-train and measure one model in ``OUT/METHOD_VALUE``, if it is not finished."""
    sweep = SWEEPS[options.name]
    folder = options.out / f"{sweep.method.lower()}_{value}"
    title = f"{sweep.method}, {sweep.axis} = {value:,}"
    # At the paper's scale, a machine runs several processes, which work on GPUs.
    threads = torch.get_num_threads() if options.scale == "quick" else 1
    if final_checkpoint(folder / "pretrain") is None:
        overrides = pretraining(options, data, value)
        run_host(overrides, folder / "pretrain", f"{title}: pre-training", threads)
    checkpoint = final_checkpoint(folder / "pretrain")
    if checkpoint is None:
        raise RuntimeError(f"{title}: the pre-training ended unfinished: see {folder}")
    if not _top1(folder / "linear"):
        overrides = linear_benchmark(options, data, checkpoint)
        run_host(overrides, folder / "linear", f"{title}: linear", threads)


def _top1(folder: Path) -> dict[str, float]:
    """Return layer → percent of a linear benchmark; empty if it is not finished."""
    try:
        return linear_accuracy(folder)
    except (ValueError, OSError):
        return {}


def write_results(
    out: Path, name: str, results: list[dict[str, Any]], settings: dict[str, str]
) -> str:
    """Write ``results.md``, ``results.json`` and ``figure.png``; return the table.

    Args:
        out: the folder.
        name: name of the sweep.
        results: for each model ``method``, ``value``, ``top1`` (layer → percent, empty if not
            measured), ``best_layer`` and ``best_top1`` (or None).
        settings: settings of the runs.
    """
    from matplotlib.figure import Figure

    sweep = SWEEPS[name]
    measured = {r["value"]: r["best_top1"] for r in results if r["best_top1"] is not None}
    lines = [f"| {sweep.axis} | {sweep.method}, linear top-1, % |", "|---|---|"]
    lines += [f"| {value:,} | {percent:.1f} |" for value, percent in measured.items()]
    lines += ["", "The best layer of each model.", ""]
    lines += [f"- {key}: {text}" for key, text in settings.items() if text]
    table = "\n".join(lines) + "\n"
    write_text(out / "results.md", table)
    write_json(out / "results.json", {"sweep": name, "settings": settings, "results": results})

    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(list(measured), list(measured.values()), "o-")
    if name != "lambda":
        axes.set_xscale("log")
    axes.set_xticks(list(measured), [f"{value:,}" for value in measured], fontsize=8)
    axes.set_xticks([], minor=True)
    axes.set(xlabel=sweep.axis, ylabel=f"{sweep.method}, linear top-1, %")
    axes.grid(alpha=0.25)
    figure.savefig(out / "figure.png", dpi=200)
    return table
