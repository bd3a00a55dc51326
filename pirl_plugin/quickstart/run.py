"""Pre-train, evaluate and report, in minutes on a CPU."""

from __future__ import annotations

import json
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pirl_plugin.checkpoints.load import save_trunk
from pirl_plugin.evaluation.linear_run import linear_top1
from pirl_plugin.models.resnet import new_trunk
from pirl_plugin.quickstart.data import (
    TRUNK,
    Data,
    find_data,
    quick_epochs,
    quick_linear,
    why_unmeasured,
)
from pirl_plugin.quickstart.features import Split, knn_by_class, read_splits
from pirl_plugin.quickstart.host_run import run_host
from pirl_plugin.quickstart.report import write_quickstart_report
from pirl_plugin.quickstart.sample.scenes import write_sample_dataset
from pirl_plugin.utils.console import counted
from pirl_plugin.utils.hydra_overrides import quoted
from pirl_plugin.utils.outputs import claim_folder, write_json
from pirl_plugin.utils.processes import processor_name

if TYPE_CHECKING:
    import argparse

Splits = tuple[Split, Split | None]
"""Training images, and test images where there are labels."""


def run_quickstart(options: argparse.Namespace, arguments: list[str]) -> None:
    """Pre-train, evaluate and report.

    Args:
        options: ``data``, ``out``, ``seed``, ``epochs``, as of the command.
        arguments: the command's words, for the report.

    Raises:
        SystemExit: data that cannot be used, or a run that failed.
    """
    start = time.perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    data = find_data(options.data or _sample_data(options.out))
    epochs = options.epochs or quick_epochs(data)
    try:
        run = claim_folder(
            options.out, {"data": str(data.train), "epochs": epochs, "seed": options.seed}
        )
    except ValueError as error:
        raise SystemExit(f"pirl_plugin: {error}") from None
    # Of earlier commands that did not come to their end.
    spent = 0.0 if (options.out / "results.json").exists() else float(run.get("seconds", 0.0))
    try:
        _run(options, arguments, data, epochs, start - spent)
    except BaseException:
        seconds = round(spent + time.perf_counter() - start, 1)
        with suppress(OSError):  # of a full disk, say, which is what ended the run
            write_json(options.out / "run.json", {**run, "seconds": seconds})
        raise


def _run(
    options: argparse.Namespace, arguments: list[str], data: Data, epochs: int, start: float
) -> None:
    """Do all that is left, and report; ``start`` is on the clock of ``time.perf_counter``."""
    print(f"{data.num_train} images in {data.train}; {counted(epochs, 'epoch')}", flush=True)
    if data.val is None:
        # Drawn images have labels: without them, the folder was given.
        print(f"No accuracies will be measured: {why_unmeasured(options.data)}", flush=True)
    else:
        print(f"Accuracies will be measured on {data.val}", flush=True)

    torch.manual_seed(options.seed)
    random_init = options.out / "random_init.torch"
    save_trunk(new_trunk(TRUNK), random_init)
    pretrained, rate = pretrain(data, options.out / "pretrain", epochs, options.seed)

    checkpoints = {"random": random_init, "pirl": pretrained}
    splits = read_splits(data, checkpoints)
    accuracies = evaluate(data, checkpoints, options.out, options.seed, splits)
    results: dict[str, Any] = {
        **accuracies,
        "seed": options.seed,
        "epochs": epochs,
        "processor": processor_name(),
        "threads": torch.get_num_threads(),  # another number adds floats in another order
        "images_per_s": round(rate or 0.0, 1),
        "seconds": round(time.perf_counter() - start, 1),
        **({} if rate else _timing(options.out)),
    }
    write_json(options.out / "results.json", results)
    command = shlex.join(["pirl-plugin", "quickstart", *arguments])
    write_quickstart_report(
        options.out, data, checkpoints, results, splits, command, drawn=options.data is None
    )
    _print_summary(results, options.out)


def pretrain(data: Data, out: Path, epochs: int, seed: int) -> tuple[Path, float | None]:
    """PIRL-jigsaw through the host's engine; returns the final checkpoint and images a second."""
    overrides = [
        "config=pretrain/pirl/quick_jigsaw",
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(data.train)}]",
        f"config.OPTIMIZER.num_epochs={epochs}",
        f"config.CHECKPOINT.CHECKPOINT_FREQUENCY={max(1, epochs // 4)}",
        f"config.SEED_VALUE={seed}",
        f"config.LOSS.pirl_loss.bank.seed={seed}",
        f"config.LOSS.pirl_loss.num_negatives={min(1024, data.num_train // 2)}",
    ]
    rate = run_host(overrides, out, "pre-training", threads=torch.get_num_threads())
    return out / f"model_final_checkpoint_phase{epochs - 1}.torch", rate


def evaluate(
    data: Data, checkpoints: dict[str, Path], out: Path, seed: int, splits: Splits
) -> dict[str, dict[str, float]]:
    """Linear benchmark of the host and kNN, of each checkpoint; nothing without labels."""
    train, test = splits
    if test is None:
        return {}
    accuracies = {
        name: {"knn_top1": round(knn_by_class(train, test, name)[0], 2)} for name in checkpoints
    }
    with ThreadPoolExecutor() as pool:  # one core each: the two runs share nothing
        for name, linear in pool.map(
            lambda name: (name, _linear(data, checkpoints[name], out / f"linear_{name}", seed)),
            checkpoints,
        ):
            accuracies[name] = {"linear_top1": round(linear, 2), **accuracies[name]}
    return accuracies


def _linear(data: Data, checkpoint: Path, out: Path, seed: int) -> float:
    """Top-1 of the host's linear benchmark at its end, percent."""
    title = f"linear, {out.name.removeprefix('linear_')}"
    overrides = [*quick_linear(data, checkpoint), f"config.SEED_VALUE={seed}"]
    run_host(overrides, out, title, threads=1)
    return linear_top1(out)["res5"]


def _sample_data(out: Path) -> Path:
    folder = out / "sample_data"
    print(f"Drawing sample images into {folder}", flush=True)
    write_sample_dataset(folder)
    return folder


def _timing(out: Path) -> dict[str, float]:
    """Of the command that pre-trained, where this one found it done; empty if that did not say."""
    try:
        earlier = json.loads((out / "results.json").read_text())
        return {name: earlier[name] for name in ("images_per_s", "seconds")}
    except (OSError, ValueError, LookupError):
        return {}


def _print_summary(results: dict[str, Any], out: Path) -> None:
    if "pirl" in results:
        print(f"\n{'':24}{'linear':>8}{'kNN':>8}   (top-1, percent)")
        for name, label in (("random", "random initialisation"), ("pirl", "PIRL")):
            row = results[name]
            print(f"{label:24}{row['linear_top1']:8.1f}{row['knn_top1']:8.1f}")
    print(f"\n{results['seconds'] / 60:.1f} minutes. Open {out / 'report.html'}")
