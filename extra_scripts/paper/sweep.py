"""Measure the effect of λ, permutations or negatives (Sec. 4): runs, table, figure.

A model needs two runs: pre-training and a benchmark on frozen features. Finished runs are skipped,
so the same command resumes a sweep.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from paper_runs import svm_map
from published import published

from pirl_plugin import cli
from pirl_plugin.checkpoints.read import RUN_CONFIG, read_config
from pirl_plugin.evaluation.finished_runs import final_accuracy, final_checkpoint
from pirl_plugin.quickstart.images import IMAGE_SIZE, Data, find_data
from pirl_plugin.quickstart.methods import METHODS
from pirl_plugin.quickstart.run import list_overlay, quick_epochs, quick_negatives, run_host
from pirl_plugin.system.arguments import Parser, output_folder, user_path
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import claim_folder, locked, write_json, write_text
from pirl_plugin.system.watcher import watching
from pirl_plugin.vissl.host_config import quoted


@dataclass(frozen=True)
class Sweep:
    """One sweep.

    Attributes:
        axis: the swept value's name.
        key: its Hydra key; with "++" if the config may not have the key.
        values: method → the paper's values.
        paper: method → the value for which one of the paper's tables has a model with the settings
            in Sec. 4; the table's number and row.
    """

    axis: str
    key: str
    values: dict[str, tuple[float, ...]]
    paper: dict[str, tuple[float, int, str]]


_PIRL_OF_SEC_4 = (5, "PIRL (Jigsaw)")
SWEEPS = {
    "lambda": Sweep(  # Fig. 6
        "λ (invariance weight)",  # Eq. 5
        "config.LOSS.pirl_loss.lambda_invariance",
        {"PIRL": (0, 0.25, 0.5, 0.75, 1)},
        {"PIRL": (0.5, *_PIRL_OF_SEC_4)},
    ),
    "permutations": Sweep(  # Fig. 7
        "Number of permutations",
        "++config.DATA.TRAIN.VIEWS.num_permutations",
        {"PIRL": (1, 10, 100, 1_000, 10_000, 362_880), "Jigsaw": (10, 100, 1_000, 10_000)},
        {"PIRL": (362_880, *_PIRL_OF_SEC_4), "Jigsaw": (2_000, 2, "Jigsaw")},
    ),
    "negatives": Sweep(  # Fig. 8
        "Number of negatives",
        "config.LOSS.pirl_loss.num_negatives",
        {"PIRL": tuple(2**power for power in range(6, 16))},
        {"PIRL": (4_096, *_PIRL_OF_SEC_4)},
    ),
}
_CONFIGS = {
    ("paper", "PIRL"): "pretrain/pirl/jigsaw_8node",
    ("paper", "Jigsaw"): "pretrain/pirl/jigsaw_baseline_8node",
    ("quick", "PIRL"): "pretrain/pirl/quick_jigsaw",
    ("quick", "Jigsaw"): "pretrain/pirl/quick_jigsaw_baseline",
}


@dataclass(frozen=True)
class Model:
    """One model in a sweep."""

    method: str
    value: float

    @property
    def folder(self) -> str:
        """The folder name."""
        return f"{self.method.lower()}_{self.value}"


def models_of(name: str, values: Sequence[float] | None = None) -> list[Model]:
    """Return a sweep's models, method by method.

    Args:
        name: the sweep's name.
        values: only these values, for each method; None: the paper's.

    Example:
        >>> [model.folder for model in models_of("permutations", [10])]
        ['pirl_10', 'jigsaw_10']
    """
    return [
        Model(method, _plain(value))
        for method, paper_values in SWEEPS[name].values.items()
        for value in sorted(set(values or paper_values))
    ]


def pretraining(options: argparse.Namespace, data: Data, model: Model) -> list[str]:
    """Return the overrides for a model's pre-training."""
    overrides = [
        f"config={_CONFIGS[options.scale, model.method]}",
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(data.train.path)}]",
    ]
    is_quick = options.scale == "quick"
    if is_quick:
        epochs = quick_epochs(
            len(data.train), METHODS["jigsaw"].images_seen
        )  # the same for each method
        overrides.append(f"config.OPTIMIZER.num_epochs={epochs}")
    if model.method == "PIRL":
        overrides.append(
            quick_negatives(len(data.train)) if is_quick else "+config/pirl/epochs=analysis_400"
        )
    value = f"{SWEEPS[options.name].key}={model.value}"
    return _merged(overrides, [*options.overrides, value])


def quick_linear(data: Data, checkpoint: Path) -> list[str]:
    """Return the overrides for VISSL's linear benchmark on a checkpoint, for any classes."""
    assert data.labeled is not None
    return [
        "config=benchmark/pirl/quick_linear",
        *list_overlay(data),
        f"config.DATA.TRAIN.DATA_PATHS=[{data.train.path}]",
        f"config.DATA.TEST.DATA_PATHS=[{data.labeled.test.path}]",
        f"config.MODEL.HEAD.NUM_CLASSES={len(data.labeled.classes)}",
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={checkpoint}",
    ]


def benchmark(options: argparse.Namespace, data: Data, checkpoint: Path) -> list[str]:
    """Return the overrides for a model's benchmark: SVMs on VOC07, or linear classifiers."""
    on_voc = options.voc is not None
    is_quick = options.scale == "quick"
    if is_quick and not on_voc:
        return _merged(quick_linear(data, checkpoint), options.linear)
    config = "svm_voc07"
    train = test = str(options.voc)
    if not on_voc:
        assert data.labeled is not None
        config = "linear_imagenet1k"
        train = data.train.path
        test = data.labeled.test.path
    overrides = [
        f"config=benchmark/pirl/{config}",
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(train)}]",
        f"config.DATA.TEST.DATA_PATHS=[{quoted(test)}]",
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={quoted(checkpoint)}",
    ]
    if is_quick:
        size = f"config.DATA.TRAIN.RESIZE=[{IMAGE_SIZE},{IMAGE_SIZE}]"
        overrides += ["+config/pirl/linear=resnet10", "+config/pirl/machines=cpu", size]
    return _merged(overrides, options.linear)


def _merged(overrides: Sequence[str], replacing: Sequence[str]) -> list[str]:
    """Return all overrides; one of ``replacing`` replaces another with the same key."""

    def key(override: str) -> str:
        return override.partition("=")[0].lstrip("+~")

    keys = set(map(key, replacing))
    return [*(override for override in overrides if key(override) not in keys), *replacing]


def run_sweep(options: argparse.Namespace) -> None:
    """Run the unfinished models, and write the table and the figure after each model.

    Args:
        options: the command's ``name``, ``data``, ``voc``, ``out``, ``scale``, ``values``,
            ``overrides`` and ``linear``.

    Raises:
        ValueError: the options are invalid, or ``out`` holds a different sweep.
        RuntimeError: a run failed.
    """
    data = find_data(options.data)
    is_split = data.labeled is not None and data.labeled.held_out_of is None
    if not is_split and options.voc is None:
        raise Refused(f"--data = {options.data} has no train/CLASS/* and val/CLASS/*.")
    settings = {
        "scale": options.scale,
        "data": str(options.data),
        "pre-training": shlex.join(options.overrides),
        "linear": shlex.join(options.linear),
    }
    if options.voc is not None:
        settings["VOC07"] = str(options.voc)
    claim_folder(options.out, {"sweep": options.name, **settings})
    for model in models_of(options.name, options.values):
        _run_model(options, data, model)
        table = write_results(options.out, options.name, _results(options), settings)
    print(f"\n{table}\nIn {options.out}: results.md, results.json, figure.png", flush=True)


def _run_model(options: argparse.Namespace, data: Data, model: Model) -> None:
    """Pre-train and evaluate one model, unless it is finished."""
    folder = options.out / model.folder
    title = f"{model.method}, {SWEEPS[options.name].axis} = {model.value:,}"
    # At the paper's scale, a machine runs several processes, which work on GPUs.
    threads = torch.get_num_threads() if options.scale == "quick" else 1
    if final_checkpoint(folder / "pretrain") is None:
        overrides = pretraining(options, data, model)
        run_host(overrides, folder / "pretrain", f"{title}: pre-training", threads)
    checkpoint = final_checkpoint(folder / "pretrain")
    if checkpoint is None:
        raise RuntimeError(f"{title}: pre-training did not finish; see {folder}")
    measure = "linear" if options.voc is None else "svm"
    if not _accuracies(folder / measure, measure):
        overrides = benchmark(options, data, checkpoint)
        script = svm_script() if measure == "svm" else None
        run_host(overrides, folder / measure, f"{title}: {measure}", threads, script=script)


def svm_script() -> list[str]:
    """Return the command for VISSL's script that trains SVMs.

    It names the file: ``python -m tools.train_svm`` would prefer a user's folder ``tools``.
    """
    host = importlib.util.find_spec("vissl")
    if host is None or host.origin is None:
        raise Refused("VISSL is not installed: pip install --no-deps vissl==0.1.6")
    return [sys.executable, str(Path(host.origin).parents[1] / "tools" / "train_svm.py")]


def _accuracies(folder: Path, measure: str) -> dict[str, float]:
    """Return layer → percent for a benchmark; empty if it is not finished."""
    try:
        if measure == "svm":
            return svm_map(folder, read_config(folder / RUN_CONFIG))
        return final_accuracy(folder)
    except (ValueError, OSError):
        return {}


def _results(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the accuracies of all models in the folder, also from earlier calls."""
    measure = "linear" if options.voc is None else "svm"
    unit = "top1" if measure == "linear" else "map"
    rows = []
    for method in SWEEPS[options.name].values:
        folders = options.out.glob(f"{method.lower()}_*")
        values = sorted(float(folder.name.partition("_")[2]) for folder in folders)
        for value in map(_plain, values):
            layers = _accuracies(options.out / Model(method, value).folder / measure, measure)
            best = max(layers, key=lambda layer: layers[layer], default="")
            row = {"method": method, "value": value, unit: layers, "best_layer": best or None}
            rows.append({**row, f"best_{unit}": layers.get(best)})
    return rows


def _plain(value: float) -> float:
    return int(value) if float(value).is_integer() else value


def write_results(
    out: Path, name: str, results: Sequence[Mapping[str, Any]], settings: Mapping[str, str]
) -> str:
    """Write ``results.md``, ``results.json`` and ``figure.png``; return the table.

    Args:
        out: the folder.
        name: the sweep's name.
        results: for each model ``method``, ``value``, ``best_layer`` and either ``top1`` and
            ``best_top1`` or ``map`` and ``best_map``: layer → percent (empty if not measured), and
            the best layer's percent (or None).
        settings: the runs' settings.
    """
    on_voc = "VOC07" in settings
    best = "best_map" if on_voc else "best_top1"
    measure = "SVM on VOC07, mAP, %" if on_voc else "linear top-1, %"
    measured: dict[str, dict[float, float]] = {method: {} for method in SWEEPS[name].values}
    for row in results:
        if row.get(best) is not None:
            measured[row["method"]][row["value"]] = row[best]
    measured = {method: points for method, points in measured.items() if points}

    table = _table(name, measured, measure)
    lines = [f"- {key}: {text}" for key, text in settings.items() if text]
    text = "\n".join([table, "", "Accuracy at each model's best layer.", "", *lines]) + "\n"
    write_text(out / "results.md", text)
    content = {"sweep": name, "settings": dict(settings), "results": list(results)}
    write_json(out / "results.json", content)
    # The figure includes the paper's points if the runs measure the same quantity.
    is_papers = settings.get("scale") == "paper" and on_voc == (name == "permutations")
    paper = published_points(name) if is_papers else {}
    draw(name, measured, paper, measure).savefig(out / "figure.png", dpi=200)
    return text


def published_points(name: str) -> dict[str, tuple[float, float]]:
    """Return method → swept value and percent, from the paper's tables.

    The paper prints no numbers for Figures 6 to 8. Its tables have these points.

    Example:
        >>> published_points("permutations")
        {'PIRL': (362880, 79.8), 'Jigsaw': (2000, 64.5)}
    """
    column = "VOC07" if name == "permutations" else "ImageNet"
    points = {}
    for method, (value, number, row) in SWEEPS[name].paper.items():
        percent = published(number, row)[column]
        if percent is not None:
            points[method] = (value, percent)
    return points


def _table(name: str, measured: Mapping[str, Mapping[float, float]], measure: str) -> str:
    heads = [f"{method}, {measure}" for method in measured]
    lines = [f"| {SWEEPS[name].axis} | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for value in sorted({value for points in measured.values() for value in points}):
        percents = [points.get(value) for points in measured.values()]
        cells = ["" if percent is None else f"{percent:.1f}" for percent in percents]
        lines.append(f"| {value:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(
    name: str,
    measured: Mapping[str, Mapping[float, float]],
    paper: Mapping[str, tuple[float, float]],
    measure: str,
) -> Any:
    """Draw a sweep's runs as lines, and the paper's points as crosses.

    Args:
        name: the sweep's name.
        measured: method → value → percent.
        paper: points from :func:`published_points`; empty for none.
        measure: label for the second axis.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.8, 3.6), layout="constrained")
    axes = figure.subplots()
    colors = {method: f"C{number}" for number, method in enumerate(SWEEPS[name].values)}
    for method, points in measured.items():
        values = sorted(points)
        percents = [points[value] for value in values]
        axes.plot(values, percents, "o-", color=colors[method], label=method)
    for method, (value, percent) in paper.items():
        axes.plot(value, percent, "X", color=colors[method], ms=9, label=f"{method}, paper")
    if name != "lambda":
        axes.set_xscale("log")
    ticks = sorted({value for points in measured.values() for value in points})
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=8)
    axes.set_xticks([], minor=True)
    axes.set(xlabel=SWEEPS[name].axis, ylabel=measure)
    if len(colors) > 1 or paper:
        axes.legend(frameon=False, fontsize=8)
    axes.grid(alpha=0.25)
    return figure


def main(arguments: list[str]) -> None:
    """Run the script.

    Raises:
        SystemExit: the options are invalid, or a run failed.
    """
    parser = Parser(
        prog="sweep.py",
        description="Pre-train a model for each value, evaluate it with the linear benchmark, and "
        "write a table and a figure. Run the same command again to resume.\nExample: "
        "python extra_scripts/paper/sweep.py lambda --data DIR --scale quick --values 0 0.5 1",
    )
    add = parser.add_argument
    add("name", choices=list(SWEEPS), help="the value to vary")
    add("overrides", nargs="*", metavar="KEY=VALUE", help="Hydra overrides for every pre-training")
    add("--data", type=user_path, required=True, help="folder with train/CLASS/*, val/CLASS/*")
    add("--voc", type=user_path, metavar="VOC2007",
        help="evaluate with SVMs on VOC07 (Fig. 7), not with linear classifiers")  # fmt: skip
    add("--out", type=output_folder, help="folder (default: runs/sweep_NAME)")
    add("--scale", choices=["paper", "quick"], default="paper",
        help="paper: ResNet-50, 400 epochs, 32 GPUs; quick: ResNet-10 on a CPU "
        "(default: %(default)s)")  # fmt: skip
    add("--values", nargs="+", metavar="V", help="only these values (default: the paper's)")
    add("--linear", metavar="KEY=VALUE", action="append", default=[],
        help="an override for every benchmark; repeatable")  # fmt: skip
    parser.check_options(arguments)
    options = parser.parse_intermixed_args(arguments)
    if options.values is not None:  # argparse passes all following words to this option
        options.overrides += [word for word in options.values if "=" in word]
        options.values = [float(word) for word in options.values if "=" not in word]
    options.out = options.out or output_folder(f"runs/sweep_{options.name}")
    options.data = options.data.resolve()
    if options.voc is not None:
        options.voc = options.voc.resolve()
    with watching(), locked(options.out, "--out"):
        run_sweep(options)


if __name__ == "__main__":
    cli.main(main)
