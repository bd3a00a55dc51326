"""Pre-train, evaluate and report, in minutes on a CPU.

Every run is ``pirl-plugin train …`` in a separate process, which shows its progress.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.read import CheckpointName
from pirl_plugin.images.labeled import save_split
from pirl_plugin.quickstart.evaluate import accuracies, evaluate
from pirl_plugin.quickstart.images import Data, find_data
from pirl_plugin.quickstart.methods import METHODS, Method
from pirl_plugin.quickstart.report import ACCURACIES, write_report
from pirl_plugin.quickstart.sample import write_sample_dataset
from pirl_plugin.system.cores import processor_name
from pirl_plugin.system.failures import FailedProcess
from pirl_plugin.system.files import claim_folder, create, digest_of, read_json, write_json
from pirl_plugin.system.processes import own_command
from pirl_plugin.system.watcher import run_command

# The network learns the sample scenes in 32,000 images. Photos need more: with 3,000 photos, 10
# epochs of PIRL gain nothing over random weights, and 40 epochs gain 6 points of kNN.
_SAMPLE_EPOCHS = 16
_FEW_PHOTOS = 1200  # fewer photos are not repeated more often


def quick_epochs(num_images: int, images_seen: int) -> int:
    """Return the default number of epochs for photos.

    Args:
        num_images: number of photos.
        images_seen: number of images to train on; fewer for less than 1,200 photos.

    Example:
        >>> [quick_epochs(number, 120_000) for number in (50, 3000, 500_000)]
        [100, 40, 1]
    """
    return max(1, round(images_seen / max(num_images, _FEW_PHOTOS)))


def quick_negatives(num_images: int) -> str:
    """Return the override for N: at most half the number of images."""
    return f"config.LOSS.pirl_loss.num_negatives={min(1024, num_images // 2)}"


def list_overlay(data: Data) -> list[str]:
    """Return the overlay for images in lists, if the data are lists."""
    return ["+config/pirl/datasets=filelist"] if Path(data.train.path).is_file() else []


def run_quickstart(
    folder: Path | None,
    out: Path,
    seed: int = 0,
    epochs: int | None = None,
    method: str = "jigsaw",
) -> None:
    """Pre-train, evaluate and report; continue what an earlier call of the same run began.

    Args:
        folder: folder with images; None for sample images.
        out: folder for runs, ``results.json`` and ``report.html``.
        seed: seed for weights and draws.
        epochs: pre-training epochs; None: 16 for sample images, else ``quick_epochs``.
        method: one of ``METHODS``.

    Raises:
        ValueError: the data are invalid, or ``out`` holds a run with other images or options.
        FailedProcess: a VISSL run failed.
    """
    start = time.time()
    # The images, and what an earlier call in this folder finished.
    if folder is None:
        folder = out / "sample_data"
        epochs = epochs or _SAMPLE_EPOCHS
        print(f"Generating sample images in {folder}", flush=True)
        write_sample_dataset(folder)
    data = find_data(folder)
    epochs = epochs or quick_epochs(len(data.train), METHODS[method].images_seen)
    sources = [data.train, *([] if data.labeled is None else [data.labeled.test])]
    digests = [digest for source in sources for digest in source.fingerprint()]
    run = {
        "command": "quickstart",
        "data": data.train.path,
        "digest of the images": digest_of(digests)[:12],  # VISSL compares only names
        "epochs": epochs,
        "seed": seed,
        "method": method,
    }
    claim_folder(out, run)
    if data.labeled is not None:
        images = save_split(data.labeled, out)
        data = Data(images.train, images)
    results_file = out / "results.json"
    if results_file.is_file() and (out / "report.html").is_file():
        _print_summary(read_json(results_file), out)
        return

    print(f"{len(data.train):,} images in {data.train.path}; epochs: {epochs}", flush=True)
    if data.labeled is None:
        print("The images are not in class folders, so no accuracy is measured", flush=True)
    checkpoint = _pretrain(data, out / "pretrain", epochs, seed, METHODS[method])
    print(f"Evaluating {METHODS[method].name}", flush=True)
    evaluated = evaluate(data, load_trunk(checkpoint), METHODS[method].name)
    results = {
        "seed": seed,
        "epochs": epochs,
        "method": method,
        "processor": processor_name(),
        "threads": torch.get_num_threads(),  # the number changes the order of float sums
        "seconds": round(time.time() - start, 1),  # of this call
    }
    if evaluated.comparison is not None:
        results |= accuracies(*evaluated.comparison)
    write_report(out, data, checkpoint, results, evaluated)
    write_json(results_file, results)
    _print_summary(results, out)


def run_host(
    overrides: Sequence[str],
    out: Path,
    title: str,
    threads: int,
    script: Sequence[str] | None = None,
) -> None:
    """Train or evaluate with VISSL's engine; the log is ``out/log.txt``.

    Args:
        overrides: Hydra overrides; the first is ``config=…``.
        out: folder for VISSL's log, checkpoints and metrics.
        title: the run's name in messages.
        threads: number of threads for the run's process.
        script: the command that takes the overrides; None: ``pirl-plugin train``.

    Raises:
        FailedProcess: the run failed; the message ends with the last line of its errors.
    """
    out.mkdir(parents=True, exist_ok=True)
    print(f"\n{title}", flush=True)
    folder = f"config.CHECKPOINT.DIR={out}"
    command = [*(script or own_command("train")), *overrides, folder]
    variables = {"OMP_NUM_THREADS": str(threads), "PIRL_PLUGIN_CONSOLE": "page"}
    console = out / "console.log"
    with create(console) as log:
        status = run_command(command, env={**os.environ, **variables}, stderr=log)
    if status != 0:
        last_line = console.read_text(errors="replace").strip().rpartition("\n")[2]
        raise FailedProcess(
            f"{title} failed with exit status {status}: {last_line} (log: {console})"
        )


def _pretrain(data: Data, out: Path, epochs: int, seed: int, method: Method) -> Path:
    """Train with VISSL's engine, which ends at once if the run is finished."""
    overrides = [
        "config=pretrain/pirl/quick_jigsaw",
        *list_overlay(data),
        *method.overrides,
        f"config.DATA.TRAIN.DATA_PATHS=[{data.train.path}]",
        f"config.OPTIMIZER.num_epochs={epochs}",
        f"config.CHECKPOINT.CHECKPOINT_FREQUENCY={max(1, epochs // 4)}",
        "config.LOG_FREQUENCY=5",
        f"config.SEED_VALUE={seed}",
        f"config.LOSS.pirl_loss.bank.seed={seed}",
        quick_negatives(len(data.train)),
    ]
    run_host(overrides, out, "Pre-training", threads=torch.get_num_threads())
    return out / str(CheckpointName("phase", epochs - 1, is_final=True))


def _print_summary(results: dict[str, Any], out: Path) -> None:
    if "pirl" in results:
        print("\nTop-1 accuracy, percent")
        for key, title in ACCURACIES.items():
            before = results["random"][key]
            after = results["pirl"][key]
            print(f"{title:18}{before:5.1f} before pre-training, {after:5.1f} after")
    print(f"\n{results['seconds'] / 60:.1f} minutes. Open {out / 'report.html'}")
