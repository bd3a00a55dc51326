"""The effect of λ, of the permutations or of the negatives (Sec. 4): runs, table, figure.

A sweep is a few chains of runs, one chain a model: pre-training, linear benchmark and, where it is
asked for, SVMs on VOC07. What is finished is not run again, so the same command resumes.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.evaluation.linear_run import final_checkpoint, linear_top1, svm_map
from pirl_plugin.files import atomic_write
from pirl_plugin.quickstart.run import (
    IMAGE_SIZE,
    TRUNK,
    Data,
    find_data,
    host_command,
    quick_epochs,
    quick_linear,
    run_host,
    write_json,
)
from pirl_plugin.settings import quoted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

NUM_ORDERS = 362_880  # 9!
_POWERS_OF_TEN = (10, 100, 1_000, 10_000)
_POLL = 30.0  # seconds between two looks at a SLURM job


@dataclass(frozen=True)
class Sweep:
    """One sweep.

    Attributes:
        symbol: of the swept value.
        axis: its name on the figure.
        key: the Hydra key that sets it; "++" where a config need not name it.
        values: method → the paper's values.
        limits: method → the least and the largest value that it can take.
    """

    symbol: str
    axis: str
    key: str
    values: dict[str, tuple[float, ...]]
    limits: dict[str, tuple[float, float]]


SWEEPS = {
    "lambda": Sweep(
        "λ",
        "Weight λ of the invariance term",  # Eq. 5
        "config.LOSS.pirl_loss.lambda_invariance",
        {"PIRL": (0, 0.25, 0.5, 0.75, 1)},
        {"PIRL": (0, 1)},
    ),
    "permutations": Sweep(
        "|T|",
        "Number of permutations |T|",
        "++config.DATA.TRAIN.VIEWS.num_permutations",
        {"PIRL": (1, *_POWERS_OF_TEN, NUM_ORDERS), "Jigsaw": _POWERS_OF_TEN},
        {"PIRL": (1, NUM_ORDERS), "Jigsaw": (2, 10_000)},  # the classifier has |T| outputs
    ),
    "negatives": Sweep(
        "N",
        "Number of negatives N",
        "config.LOSS.pirl_loss.num_negatives",
        {"PIRL": tuple(2**power for power in range(6, 16))},
        {"PIRL": (1, float("inf"))},
    ),
}
_CONFIGS = {
    ("paper", "PIRL"): "pretrain/pirl/jigsaw_8node",
    ("paper", "Jigsaw"): "pretrain/pirl/jigsaw_baseline_8node",
    ("quick", "PIRL"): "pretrain/pirl/quick_jigsaw",
    ("quick", "Jigsaw"): "pretrain/pirl/quick_jigsaw_baseline",
}


@dataclass(frozen=True)
class Run:
    """One run of the host: title, ``CHECKPOINT.DIR``, overrides, and what says that it ended."""

    title: str
    folder: Path
    overrides: tuple[str, ...]
    measure: Callable[[Path], Any]
    tool: str | None = None

    def result(self) -> Any:
        """What the finished run measured (a checkpoint or layer → percent); None before."""
        try:
            return self.measure(self.folder)
        except (ValueError, OSError):
            return None


def points(name: str, chosen: Sequence[str] | None = None) -> list[tuple[str, float]]:
    """(method, value) of each model of a sweep: of the values as typed, or of all the paper's.

    Raises:
        ValueError: no method can take a value.

    Example:
        >>> points("permutations", ["1", "10"])
        [('PIRL', 1), ('PIRL', 10), ('Jigsaw', 10)]
    """
    sweep = SWEEPS[name]
    if chosen is None:
        return [(method, value) for method, values in sweep.values.items() for value in values]
    values = [float(text) for text in chosen]
    for value in values:
        fits = any(low <= value <= high for low, high in sweep.limits.values())
        if not fits or (name != "lambda" and not value.is_integer()):
            raise ValueError(f"--values = {value:g}: {name} cannot be that; give one of "
                             f"{sweep.values['PIRL']} or near them")  # fmt: skip
    whole = sorted({int(v) if v.is_integer() else v for v in values})
    return [(m, v) for m, (low, high) in sweep.limits.items() for v in whole if low <= v <= high]


def chain(options: argparse.Namespace, data: Data, method: str, value: float) -> list[Run]:
    """The runs of one model, in ``OUT/METHOD_VALUE``, in order."""
    sweep, quick = SWEEPS[options.name], options.scale == "quick"
    folder = options.out / f"{method.lower()}_{value}"
    pretrain = [
        f"config={_CONFIGS[options.scale, method]}",
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(data.train)}]",
    ]
    if quick:
        pretrain.append(f"config.OPTIMIZER.num_epochs={quick_epochs(data)}")
        if method == "PIRL":
            pretrain.append(f"config.LOSS.pirl_loss.num_negatives={min(1024, data.num_train // 2)}")
    elif method == "PIRL":
        pretrain.append("+config/pirl/epochs=analysis_400")
    given = [o for o in options.overrides if method == "PIRL" or "pirl_loss" not in o]
    pretrain = _merged(pretrain, [*given, f"{sweep.key}={value}"])
    checkpoint = final_checkpoint(folder / "pretrain") or folder / "pretrain" / "checkpoint.torch"
    linear = quick_linear(data, checkpoint)
    if not quick:
        linear = ["config=benchmark/pirl/linear_imagenet1k"] + [
            o for o in linear[1:] if "NUM_CLASSES" not in o
        ]
    title = f"{method}, {sweep.symbol} = {label(value)}"
    runs = [
        Run(f"{title}: pre-training", folder / "pretrain", tuple(pretrain), final_checkpoint),
        Run(
            f"{title}: linear",
            folder / "linear",
            tuple(_merged(linear, options.linear)),
            linear_top1,
        ),
    ]
    if options.voc07 is not None:
        svm = ["config=benchmark/pirl/svm_voc07"]
        svm += [
            f"config.DATA.{part}.DATA_PATHS=[{quoted(options.voc07)}]" for part in ("TRAIN", "TEST")
        ]
        svm.append(f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={quoted(checkpoint)}")
        if quick:
            section = ", ".join(f"{k}: {v}" for k, v in TRUNK.items())
            svm += [
                "+config/pirl/machines=cpu",
                "config.MODEL.TRUNK.NAME=pirl_resnet",
                f"+config.MODEL.TRUNK.PIRL_RESNET={{{section}}}",
                "config.MODEL.FEATURE_EVAL_SETTINGS.LINEAR_EVAL_FEAT_POOL_OPS_MAP="
                "[[res5, [AdaptiveAvgPool2d, [[1, 1]]]]]",
                f"config.DATA.TRAIN.RESIZE=[{IMAGE_SIZE}, {IMAGE_SIZE}]",
            ]
        runs.append(Run(f"{title}: VOC07", folder / "voc07", tuple(svm), svm_map, "train_svm.py"))
    return runs


def _merged(ours: Sequence[str], given: Sequence[str]) -> list[str]:
    """Our overrides without those that the user gives: Hydra refuses an overlay group twice."""

    def key(override: str) -> str:
        return override.partition("=")[0].lstrip("+~")

    again = {key(override) for override in given}
    return [*(o for o in ours if key(o) not in again), *given]


def run_sweep(options: argparse.Namespace) -> None:
    """Run what is not finished, then write the table and the figure.

    Args:
        options: ``name``, ``data``, ``out``, ``scale``, ``values``, ``overrides``, ``linear``,
            ``voc07``, ``slurm``, ``dry_run``, as of the command.

    Raises:
        ValueError: options that cannot be used, or ``out`` holds another sweep.
        RuntimeError: at the end, if runs failed.
    """
    data = find_data(options.data)
    if data.val is None:
        raise ValueError(f"--data = {options.data}: expected train/CLASS/* and val/CLASS/*")
    if options.slurm and options.voc07 is not None:
        raise ValueError("--voc07 with --slurm: VISSL's SVMs run here; add --voc07 afterwards")
    asked = points(options.name, options.values)
    if options.dry_run:
        for run in (run for point in asked for run in chain(options, data, *point)):
            finished = run.result() is not None
            print(
                f"# finished: {run.title}" if finished else shlex.join(_command(run, options.slurm))
            )
        return
    about = {
        "scale": options.scale,
        "data": str(options.data),
        "pre-training": shlex.join(options.overrides),
        "linear": shlex.join(options.linear),
    }
    known = _claim(options, about, asked)

    def make(point: tuple[str, float]) -> str | None:
        """Run a chain to its end; what failed, or None."""
        for number in range(len(chain(options, data, *point))):
            run = chain(options, data, *point)[number]  # knows the checkpoint of the run before
            if run.result() is not None:
                continue
            try:
                _run_on_slurm(run, options.slurm) if options.slurm else _run_here(
                    run, options.scale
                )
                if run.result() is None:
                    raise RuntimeError(f"{run.title} ended unfinished: see {run.folder}")
            except (RuntimeError, OSError) as error:
                print(error, file=sys.stderr, flush=True)
                return str(error).splitlines()[0]
        return None

    with ThreadPoolExecutor(len(asked) if options.slurm else 1) as pool:
        failures = [failure for failure in pool.map(make, asked) if failure]
    results = []
    for point in known:
        _, linear, *svm = (run.result() or {} for run in chain(options, data, *point))
        results.append({"method": point[0], "value": point[1], "top1": linear,
                        **({"voc07": svm[0]} if svm else {})})  # fmt: skip
    print("\n" + write_results(options.out, options.name, results, about))
    print(f"In {options.out}: results.md, results.json, figure.png", flush=True)
    if failures:
        raise RuntimeError(
            f"{len(failures)} of {len(asked)} models failed; the same command tries them again:\n  "
            + "\n  ".join(failures)
        )


def _claim(
    options: argparse.Namespace, about: dict[str, str], asked: list[tuple[str, float]]
) -> list[tuple[str, float]]:
    """Note the sweep in ``sweep.json``; all models that it was ever asked for."""
    import json

    file, now = options.out / "sweep.json", {"sweep": options.name, **about}
    before = json.loads(file.read_text()) if file.is_file() else {**now, "models": []}
    odd = [key for key, value in now.items() if before.get(key) != value]
    if odd:
        raise ValueError(
            f"--out = {options.out}: expected the sweep that is there ({odd[0]} "
            f"'{before.get(odd[0])}', now '{now[odd[0]]}'); use another --out"
        )
    order = list(SWEEPS[options.name].limits)
    models = {(method, value) for method, value in before["models"]} | set(asked)
    known = sorted(models, key=lambda point: (order.index(point[0]), point[1]))
    write_json(file, {**now, "models": known})
    return known


def _run_here(run: Run, scale: str) -> None:
    import torch

    # At the paper's scale a machine has several processes, whose work is on GPUs.
    threads = torch.get_num_threads() if scale == "quick" else 1
    run_host(run.overrides, run.folder, run.title, threads, tool=run.tool)


def _command(run: Run, partition: str | None) -> list[str]:
    """What a user would type to make the run; on SLURM, with a port of the run's own."""
    start = ["pirl-plugin", "train"] if run.tool is None else host_command(run.tool)
    words = [*start, *run.overrides, f"config.CHECKPOINT.DIR={quoted(run.folder)}"]
    if partition:
        words += [
            "config.SLURM.USE_SLURM=true",
            f"config.SLURM.PARTITION={quoted(partition)}",
            f"config.SLURM.NAME={run.folder.parent.name}_{run.folder.name}",
            f"config.SLURM.LOG_FOLDER={quoted(run.folder / 'slurm')}",
            f"config.SLURM.PORT_ID={20_000 + zlib.crc32(os.fsencode(run.folder)) % 12_000}",
        ]
    return words


def _run_on_slurm(run: Run, partition: str) -> None:
    """Submit the run by the host's submitit, unless its job is known, and wait for the job.

    The job's number is kept in ``slurm_job``, so that a sweep that was stopped waits for it.
    """
    known = run.folder / "slurm_job"
    if not known.is_file():
        run.folder.mkdir(parents=True, exist_ok=True)
        command = [*host_command(), *_command(run, partition)[2:]]
        log = run.folder / "console.log"
        with log.open("w") as file:  # not a pipe, which a job on this machine would hold open
            subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False)
        job = re.search(r"^SUBMITTED: (\S+)", log.read_text(), re.MULTILINE)
        if job is None:
            raise RuntimeError(f"{run.title} was not submitted: see {log}")
        with atomic_write(known) as out:
            out.write(job[1].encode())
        print(f"{run.title}: SLURM job {job[1]}", flush=True)
    job_id = known.read_text()
    while run.result() is None and not _ended(run.folder / "slurm", job_id):
        time.sleep(_POLL)
    known.unlink()  # if it is unfinished, the same command submits it again


def _ended(logs: Path, job: str) -> bool:
    if shutil.which("srun") is None:  # submitit then runs jobs on this machine
        return (logs / f"{job}_0_result.pkl").exists()
    from submitit import SlurmJob

    return bool(SlurmJob(logs, job).done())


def write_results(
    out: Path, name: str, results: list[dict[str, Any]], settings: dict[str, str]
) -> str:
    """Write ``results.md``, ``results.json`` and ``figure.png``; returns the table.

    Args:
        out: the folder.
        name: of the sweep.
        results: ``method``, ``value``, ``top1`` (layer → percent, empty before it is measured) and
            perhaps ``voc07`` (layer → mAP, percent) of each model. The best layer is reported.
        settings: of the runs.
    """
    from matplotlib.figure import Figure

    sweep, measures = SWEEPS[name], {"top1": "linear top-1, %"}
    if any("voc07" in row for row in results):
        measures["voc07"] = "VOC07 SVM mAP, %"
    methods = list(dict.fromkeys(row["method"] for row in results))
    found = {(row["method"], row["value"], key): max(row[key].values(), default=float("nan"))
             for row in results for key in measures if key in row}  # fmt: skip
    columns = [(method, key) for method in methods for key in measures]
    heads = [sweep.symbol.replace("|", "\\|"), *(f"{m}, {measures[key]}" for m, key in columns)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for value in sorted({row["value"] for row in results}):
        best = [found.get((method, value, key), float("nan")) for method, key in columns]
        lines.append(
            f"| {label(value)} | {' | '.join('' if b != b else f'{b:.1f}' for b in best)} |"
        )
    lines += ["", "The best layer of each model.", ""]
    lines += [f"- {key}: {text}" for key, text in settings.items() if text]
    table = "\n".join(lines) + "\n"
    with atomic_write(out / "results.md") as file:
        file.write(table.encode())
    for row in results:
        layers = row["top1"]
        row["best_layer"] = max(layers, key=lambda layer: layers[layer]) if layers else None
        row["best_top1"] = layers[row["best_layer"]] if layers else None
        if "voc07" in row:
            row["best_voc07_map"] = max(row["voc07"].values(), default=None)
    write_json(out / "results.json", {"sweep": name, "settings": settings, "results": results})

    figure = Figure(figsize=(5.2, 3.2 * len(measures)), layout="constrained")
    for axes, (key, title) in zip(
        figure.subplots(len(measures), squeeze=False).ravel(), measures.items(), strict=True
    ):
        for method in methods:
            mine = sorted((v, y) for (m, v, k), y in found.items() if (m, k) == (method, key))
            axes.plot(*zip(*mine, strict=True), marker="o", label=method)
        if name != "lambda":
            axes.set_xscale("log")
        ticks = sorted({row["value"] for row in results})
        axes.set_xticks(ticks, [label(value) for value in ticks], fontsize=8)
        axes.set_xticks([], minor=True)
        axes.set(xlabel=sweep.axis, ylabel=title)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False)
    figure.savefig(out / "figure.png", dpi=200)
    return table


def label(value: float) -> str:
    """A value as people read it: ``0.25``, ``10,000``, ``9!``."""
    return "9!" if value == NUM_ORDERS else f"{value:,}"
