"""Pre-train, evaluate and report, in minutes on a CPU.

Every run is ``python -m pirl_plugin train …`` in a separate process, which shows its progress.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset

from pirl_plugin.checkpoints.load import load_trunk, save_trunk
from pirl_plugin.checkpoints.training_run import RUN_CONFIG, read_config
from pirl_plugin.evaluation.features import (
    Crops,
    evenly_spaced,
    extract_features,
    labelled_folders,
)
from pirl_plugin.evaluation.knn import knn_accuracy
from pirl_plugin.evaluation.linear_run import final_checkpoint, linear_accuracy
from pirl_plugin.files import claim_folder, read_json_lines, write_json
from pirl_plugin.images.folders import class_folders, find_split
from pirl_plugin.images.sources import FolderSource
from pirl_plugin.models.resnet import ResNetTrunk
from pirl_plugin.processes import processor_name
from pirl_plugin.quickstart.sample import write_sample_dataset
from pirl_plugin.settings import quoted

IMAGE_SIZE = 64
IMAGES_SEEN = 32_000  # in pre-training, whatever the size of the data set
_UNLABELLED = 2000  # images for the search of neighbours if there are no classes


@dataclass(frozen=True)
class Data:
    """The folders of images.

    Attributes:
        train: folder of training images.
        val: folder of test images with the same class subfolders; None: no accuracy is measured.
        num_train: number of training images.
    """

    train: Path
    val: Path | None
    num_train: int


@dataclass(frozen=True)
class Split:
    """Images of one folder.

    Attributes:
        source: the source of the images.
        rows: the N readable rows of the source.
        features: name of a checkpoint → float32 ``(N, D)``, pooled res5.
    """

    source: FolderSource
    rows: list[int]
    features: dict[str, Tensor]

    @property
    def classes(self) -> list[str]:
        """The first-level subfolder of each image; its file name if there is none."""
        paths = (Path(self.source.path_of(row)) for row in self.rows)
        return [path.relative_to(self.source.path).parts[0] for path in paths]


def find_data(folder: Path) -> Data:
    """Find ``train/CLASS/*`` and ``val/CLASS/*``, or a folder of images.

    Raises:
        ValueError: there are fewer than two images, or ``val`` has other classes.
    """
    train = find_split(folder, "train") or folder
    val = find_split(folder, "val")
    if train == folder or val is None or len(class_folders(train)) < 2:
        return Data(train, None, len(FolderSource(train)))
    labelled_folders(folder)  # checks them
    return Data(train, val, len(FolderSource(train)))


def quick_epochs(data: Data) -> int:
    """Return the number of epochs with about ``IMAGES_SEEN`` images, at least one."""
    return max(1, round(IMAGES_SEEN / data.num_train))


def quick_negatives(data: Data) -> str:
    """Return the override of N: at most half of the images."""
    return f"config.LOSS.pirl_loss.num_negatives={min(1024, data.num_train // 2)}"


def quick_linear(data: Data, checkpoint: Path) -> list[str]:
    """Return the overrides of the host's linear benchmark for a checkpoint and any classes."""
    return [
        "config=benchmark/pirl/quick_linear",
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(data.train)}]",
        f"config.DATA.TEST.DATA_PATHS=[{quoted(str(data.val))}]",
        f"config.MODEL.HEAD.NUM_CLASSES={len(class_folders(str(data.train)))}",
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={quoted(checkpoint)}",
    ]


def run_quickstart(
    folder: Path | None, out: Path, seed: int = 0, epochs: int | None = None
) -> None:
    """Pre-train, evaluate and report; skip parts that an earlier call finished.

    Args:
        folder: folder of images; None for sample images.
        out: folder for runs, ``results.json`` and ``report.html``.
        seed: seed of weights and draws.
        epochs: epochs of pre-training; None for ``quick_epochs``.

    Raises:
        ValueError: the data cannot be used, or ``out`` holds another run.
        RuntimeError: a run of the host failed.
    """
    from pirl_plugin.quickstart.report import write_report

    start = time.perf_counter()
    if folder is None:
        folder = out / "sample_data"
        print(f"Drawing sample images into {folder}", flush=True)
        write_sample_dataset(folder)
    data = find_data(folder)
    epochs = epochs or quick_epochs(data)
    claim_folder(out, {"data": str(data.train), "epochs": epochs, "seed": seed})
    if (out / "results.json").is_file() and (out / "report.html").is_file():
        _print_summary(json.loads((out / "results.json").read_text()), out)
        return
    print(f"{data.num_train:,} images in {data.train}; epochs: {epochs}")
    if data.val is None:
        print("No accuracy is measured: there are no train/CLASS/* and val/CLASS/*")

    torch.manual_seed(seed)
    checkpoints = {"random": out / "random_init.torch"}
    save_trunk(ResNetTrunk(10, 0.5), checkpoints["random"])  # as in pretrain/pirl/quick_jigsaw
    checkpoints["pirl"] = _pretrain(data, out / "pretrain", epochs, seed)
    print("Evaluating PIRL and random initialisation", flush=True)
    train = read_split(data.train, checkpoints, None if data.val else _UNLABELLED)
    test = read_split(data.val, checkpoints) if data.val else None
    batch = read_config(out / "pretrain" / RUN_CONFIG)["DATA"]["TRAIN"]["BATCHSIZE_PER_REPLICA"]
    lines = read_json_lines(out / "pretrain" / "stdout.json")
    times = [line["btime(ms)"] for line in lines if line.get("btime(ms)")]
    results: dict[str, Any] = {
        **(_accuracies(data, checkpoints, out, seed, train, test) if test else {}),
        "seed": seed,
        "epochs": epochs,
        "processor": processor_name(),
        "threads": torch.get_num_threads(),  # their number changes the order of float sums
        "images_per_s": round(1000 * batch / times[-1], 1) if times else 0.0,
        "seconds": round(time.perf_counter() - start, 1),
    }
    write_report(out, data, checkpoints, results, train, test)
    write_json(out / "results.json", results)
    _print_summary(results, out)


def run_host(
    overrides: Sequence[str], out: Path, title: str, threads: int, shown: bool = True
) -> None:
    """Train or evaluate through the host's engine; its log is ``out/log.txt``.

    Args:
        overrides: Hydra overrides; the first is ``config=…``.
        out: folder for the host's log, checkpoints and metrics.
        title: name of the run in messages.
        threads: number of threads of the run's process.
        shown: whether the console shows the progress; otherwise it goes to ``out/console.log``.

    Raises:
        RuntimeError: the run failed; the message has the last line of its errors.
    """
    out.mkdir(parents=True, exist_ok=True)
    print(f"\n{title}", flush=True)
    where = f"config.CHECKPOINT.DIR={quoted(out)}"
    command = [sys.executable, "-m", "pirl_plugin", "train", *overrides, where]
    variables = {"OMP_NUM_THREADS": str(threads), "PIRL_PLUGIN_CONSOLE": "page"}
    console = out / "console.log"
    with (
        console.open("w") as log,
        subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdout=None if shown else log,
            stderr=log,
        ) as process,
    ):
        try:
            status = process.wait()
        except BaseException:  # such as SIGTERM: the run saves before it ends
            process.terminate()
            raise
    if status != 0:
        last = console.read_text(errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"{title} failed with exit status {status}: {last} (log: {console})")


def _pretrain(data: Data, out: Path, epochs: int, seed: int) -> Path:
    """Train PIRL-jigsaw through the host's engine if not finished; return its checkpoint."""
    done = final_checkpoint(out)
    if done is not None:
        return done
    overrides = [
        "config=pretrain/pirl/quick_jigsaw",
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(data.train)}]",
        f"config.OPTIMIZER.num_epochs={epochs}",
        f"config.CHECKPOINT.CHECKPOINT_FREQUENCY={max(1, epochs // 4)}",
        "config.LOG_FREQUENCY=5",
        f"config.SEED_VALUE={seed}",
        f"config.LOSS.pirl_loss.bank.seed={seed}",
        quick_negatives(data),
    ]
    run_host(overrides, out, "Pre-training", threads=torch.get_num_threads())
    return out / f"model_final_checkpoint_phase{epochs - 1}.torch"


def read_split(folder: Path, checkpoints: Mapping[str, Path], limit: int | None = None) -> Split:
    """Return each trunk's features of a folder's images, at most ``limit`` evenly spread ones."""
    source = FolderSource(folder)
    rows = evenly_spaced(len(source), limit or len(source))
    trunks = [load_trunk(file) for file in checkpoints.values()]
    features, valid = extract_features(trunks, Subset(Crops(source, IMAGE_SIZE), rows), workers=0)
    kept = [row for row, readable in zip(rows, valid.tolist(), strict=True) if readable]
    return Split(source, kept, dict(zip(checkpoints, features[:, valid].float(), strict=True)))


def _accuracies(
    data: Data, checkpoints: dict[str, Path], out: Path, seed: int, train: Split, test: Split
) -> dict[str, dict[str, float]]:
    """Return the host's linear benchmark and the kNN of each checkpoint, top-1 in percent."""

    def linear(name: str) -> float:
        folder = out / f"linear_{name}"
        with suppress(ValueError):  # not finished
            return linear_accuracy(folder)["res5"]
        overrides = [*quick_linear(data, checkpoints[name]), f"config.SEED_VALUE={seed}"]
        # Both take equally long, so one of them shows the remaining time for both.
        run_host(overrides, folder, f"Linear benchmark, {name}", 1, shown=name == "pirl")
        return linear_accuracy(folder)["res5"]

    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:  # one core each
        linears = list(pool.map(linear, checkpoints))
    known, asked = (torch.from_numpy(s.source.labels()[s.rows]) for s in (train, test))
    found = {}
    for name, top1 in zip(checkpoints, linears, strict=True):
        knn = knn_accuracy(train.features[name], known, test.features[name], asked)
        found[name] = {"linear_top1": round(top1, 2), "knn_top1": round(knn, 2)}
    return found


def _print_summary(results: dict[str, Any], out: Path) -> None:
    if "pirl" in results:
        print(f"\n{'':24}{'linear':>8}{'kNN':>8}   (top-1, percent)")
        for name, label in (("random", "random initialisation"), ("pirl", "PIRL")):
            row = results[name]
            print(f"{label:24}{row['linear_top1']:8.1f}{row['knn_top1']:8.1f}")
    print(f"\n{results['seconds'] / 60:.1f} minutes. Open {out / 'report.html'}")
