"""Pre-train, evaluate and report, in minutes on a CPU.

Every run is ``python -m pirl_plugin train …`` in a process of its own, with its progress on one
line and its whole log in ``console.log`` of its folder.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from tqdm import tqdm

from pirl_plugin.checkpoints.load import load_trunk, save_trunk
from pirl_plugin.evaluation.features import (
    labelled_sources,
    read_images,
    trunk_features,
    val_folder,
)
from pirl_plugin.evaluation.knn import knn_accuracy
from pirl_plugin.evaluation.linear_run import final_checkpoint, linear_top1
from pirl_plugin.files import atomic_write
from pirl_plugin.images.folders import class_folders
from pirl_plugin.images.sources import FolderSource
from pirl_plugin.models.resnet import new_trunk
from pirl_plugin.processes import processor_name, stream
from pirl_plugin.quickstart.sample import write_sample_dataset
from pirl_plugin.settings import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TRUNK = {"DEPTH": 10, "WIDTH_MULTIPLIER": 0.5}  # as in config=pretrain/pirl/quick_jigsaw
IMAGE_SIZE = 64
IMAGES_SEEN = 50_000  # in pre-training, whatever the size of the data set
_SPEED = 140  # images a second of one core, for a first estimate of the time
_STEP = re.compile(r"\[ep: (\d+)\] iter: (\d+); .*?loss: ([\d.]+)")
_SIZES = re.compile(  # what the host says before it trains, in this order
    r"One epoch = (?P<epoch>\d+) iterations|Total (?P<images>\d+) samples in one epoch"
    r"|Total (?P<iterations>\d+) iterations for training"
)


@dataclass(frozen=True)
class Data:
    """Where the images are.

    Attributes:
        train: folder of training images.
        val: folder of test images with the same class subfolders; None: nothing is measured.
        num_train: training images.
        num_classes: class subfolders of ``train``, at least 1.
    """

    train: Path
    val: Path | None
    num_train: int
    num_classes: int


@dataclass(frozen=True)
class Split:
    """The images of one folder.

    Attributes:
        folder: with the images in it or in subfolders.
        paths: relative to ``folder``; N of them, those that can be read.
        features: name of a checkpoint → float32 ``(N, D)``, pooled res5.
    """

    folder: Path
    paths: list[str]
    features: dict[str, Tensor]

    @property
    def classes(self) -> list[str]:
        """Class of each image: the name of its subfolder, or ``""`` where there is none."""
        return [Path(p).parts[0] if len(Path(p).parts) > 1 else "" for p in self.paths]


def find_data(folder: Path) -> Data:
    """Look at ``train/CLASS/*`` and ``val/CLASS/*`` (or ``validation/``), or a folder of images.

    Raises:
        ValueError: there are fewer than two images, other classes in ``val``, or images
            beside the class folders.
    """
    train = folder / "train" if (folder / "train").is_dir() else folder
    val, classes = val_folder(folder), class_folders(str(train))
    if train == folder or val is None or len(classes) < 2:
        return Data(train, None, len(FolderSource(train)), max(1, len(classes)))
    return Data(train, val, len(labelled_sources(folder)[0]), len(classes))


def quick_epochs(data: Data) -> int:
    """Epochs in which about ``IMAGES_SEEN`` images are seen, at least one."""
    return max(1, round(IMAGES_SEEN / data.num_train))


def quick_linear(data: Data, checkpoint: Path) -> list[str]:
    """Overrides of the host's linear benchmark of a checkpoint, for any number of classes."""
    return [
        "config=benchmark/pirl/quick_linear",
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(data.train)}]",
        f"config.DATA.TEST.DATA_PATHS=[{quoted(str(data.val))}]",
        f"config.MODEL.HEAD.NUM_CLASSES={data.num_classes}",
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={quoted(checkpoint)}",
    ]


def write_json(path: Path, content: object) -> None:
    """Write a JSON file, whole or not at all."""
    with atomic_write(path) as file:
        file.write((json.dumps(content, indent=2) + "\n").encode())


def run_quickstart(
    folder: Path | None, out: Path, seed: int = 0, epochs: int | None = None
) -> None:
    """Pre-train, evaluate and report; use what an earlier call with the same arguments finished.

    Args:
        folder: of images; None for sample images.
        out: for runs, ``results.json`` and ``report.html``.
        seed: of weights and draws.
        epochs: of pre-training; None for ``quick_epochs``.

    Raises:
        ValueError: data that cannot be used, or ``out`` holds another run.
        RuntimeError: a run of the host failed.
    """
    from pirl_plugin.quickstart.report import write_report

    start = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    if folder is None:
        print(f"Drawing sample images into {out / 'sample_data'}", flush=True)
        write_sample_dataset(out / "sample_data")
    data = find_data(folder or out / "sample_data")
    epochs = epochs or quick_epochs(data)
    run = {"data": str(data.train), "epochs": epochs, "seed": seed}
    known = json.loads((out / "run.json").read_text()) if (out / "run.json").is_file() else run
    if known != run:
        raise ValueError(f"--out = {out}: expected the run {run}, found {known}; use another --out")
    write_json(out / "run.json", run)
    if (out / "results.json").is_file() and (out / "report.html").is_file():
        _print_summary(json.loads((out / "results.json").read_text()), out)
        return
    minutes = epochs * data.num_train / _SPEED / min(2, torch.get_num_threads()) / 60 + 1
    print(f"{data.num_train:,} images in {data.train}; epochs: {epochs}; about {minutes:.0f} min")
    if data.val is None:
        print("No accuracy will be measured: there are no train/CLASS/* and val/CLASS/*")

    torch.manual_seed(seed)
    checkpoints = {"random": out / "random_init.torch"}
    save_trunk(new_trunk(TRUNK), checkpoints["random"])
    checkpoints["pirl"], rate = _pretrain(data, out / "pretrain", epochs, seed)
    print(f"Evaluating PIRL and random initialisation: {'about 1 min' if data.val else 'seconds'}")
    train = _read_split(data.train, checkpoints, None if data.val else 2000)
    test = _read_split(data.val, checkpoints) if data.val else None
    results: dict[str, Any] = {
        **(_accuracies(data, checkpoints, out, seed, train, test) if test else {}),
        "seed": seed,
        "epochs": epochs,
        "processor": processor_name(),
        "threads": torch.get_num_threads(),  # another number adds floats in another order
        "images_per_s": round(rate, 1),
        "seconds": round(time.perf_counter() - start, 1),
    }
    write_report(out, data, checkpoints, results, train, test)
    write_json(out / "results.json", results)
    _print_summary(results, out)


def run_host(
    overrides: Sequence[str], out: Path, title: str, threads: int, tool: str | None = None
) -> float:
    """Train or evaluate through the host's engine; its log is ``out/console.log``.

    Args:
        overrides: Hydra overrides, beginning with ``config=…``.
        out: folder for the log and the host's checkpoints and metrics.
        title: what the progress line calls the run.
        threads: of the run's process.
        tool: another script of the host than its engine's, such as ``train_svm.py``.

    Returns:
        Images a second of the training loop; 0 where the run was finished already.

    Raises:
        RuntimeError: the run failed; quotes the end of its log.
    """
    out.mkdir(parents=True, exist_ok=True)
    command = [*host_command(tool), *overrides, f"config.CHECKPOINT.DIR={quoted(out)}"]
    bar: tqdm[None] = tqdm(
        desc=title,
        unit=" images",
        file=sys.stdout,
        mininterval=0.5 if sys.stdout.isatty() else 10,
        dynamic_ncols=True,
        smoothing=0.05,
    )
    progress = _Progress(bar)
    with bar:
        environment = {"OMP_NUM_THREADS": str(threads), "PIRL_PLUGIN_CONSOLE": "log"}
        ended = stream(command, progress.read, out / "console.log", environment=environment)
    if ended.status != 0:
        raise RuntimeError(
            f"{title} failed with exit status {ended.status}; the end of {out / 'console.log'}:\n"
            + "".join(ended.tail)
        )
    return progress.rate()


def host_command(tool: str | None = None) -> list[str]:
    """What starts the host's engine, or another of its scripts, on this Python."""
    if tool is None:
        return [sys.executable, "-m", "pirl_plugin", "train"]
    found = importlib.util.find_spec("vissl")
    if found is None or found.origin is None:
        raise RuntimeError("vissl is not installed; pip install --no-deps vissl==0.1.6")
    return [sys.executable, str(Path(found.origin).parents[1] / "tools" / tool)]


class _Progress:
    """What the host prints, as a bar in images whose rate and time left are tqdm's."""

    def __init__(self, bar: tqdm[None]) -> None:
        self._bar = bar
        self._sizes: dict[str, int] = {}
        self._first: tuple[int, float] | None = None  # images and seconds at the first line
        self._last = (0, 0.0)

    def read(self, line: str) -> None:
        """Take a line of the host's log."""
        if found := _SIZES.search(line):
            self._sizes |= {name: int(value) for name, value in found.groupdict().items() if value}
            if len(self._sizes) == 3:
                per_step = self._sizes["images"] / self._sizes["epoch"]
                self._bar.reset(total=round(self._sizes["iterations"] * per_step))
        elif (found := _STEP.search(line)) and self._bar.total:
            done = int(int(found[2]) * self._sizes["images"] / self._sizes["epoch"])
            self._last = (done, time.perf_counter())
            if self._first is None:  # a resumed run begins at its own step
                self._first = self._last
                self._bar.initial = self._bar.n = self._bar.last_print_n = done
            self._bar.set_postfix_str(f"epoch {int(found[1]) + 1}, loss {found[3]}", refresh=False)
            self._bar.update(done - self._bar.n)

    def rate(self) -> float:
        """Images a second between the first and the last line; 0 without two lines."""
        if self._first is None or self._last == self._first:
            return 0.0
        return (self._last[0] - self._first[0]) / (self._last[1] - self._first[1])


def _pretrain(data: Data, out: Path, epochs: int, seed: int) -> tuple[Path, float]:
    """PIRL-jigsaw through the host's engine: the final checkpoint and images a second."""
    done = final_checkpoint(out)
    if done is not None:
        return done, 0.0
    overrides = [
        "config=pretrain/pirl/quick_jigsaw",
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(data.train)}]",
        f"config.OPTIMIZER.num_epochs={epochs}",
        f"config.CHECKPOINT.CHECKPOINT_FREQUENCY={max(1, epochs // 4)}",
        "config.LOG_FREQUENCY=5",
        f"config.SEED_VALUE={seed}",
        f"config.LOSS.pirl_loss.bank.seed={seed}",
        f"config.LOSS.pirl_loss.num_negatives={min(1024, data.num_train // 2)}",
    ]
    rate = run_host(overrides, out, "pre-training", threads=torch.get_num_threads())
    return out / f"model_final_checkpoint_phase{epochs - 1}.torch", rate


def _read_split(folder: Path, checkpoints: Mapping[str, Path], limit: int | None = None) -> Split:
    """Read a folder's images, at most ``limit``, and take each trunk's features of them."""
    images, paths = read_images(folder, IMAGE_SIZE, limit)
    names = checkpoints.items()
    return Split(folder, paths, {n: trunk_features(load_trunk(file), images) for n, file in names})


def knn_by_class(train: Split, test: Split, name: str) -> tuple[float, dict[str, float]]:
    """The kNN classifier's top-1 of all test images, and of those of each class, percent."""
    numbers = {label: number for number, label in enumerate(sorted(set(train.classes)))}
    gallery = (train.features[name], torch.tensor([numbers[c] for c in train.classes]))
    labels = torch.tensor([numbers.get(c, -1) for c in test.classes])
    queries = test.features[name]
    each = {}
    for label in sorted(set(test.classes)):
        rows = torch.tensor([c == label for c in test.classes])
        each[label] = knn_accuracy(*gallery, queries[rows], labels[rows])
    return knn_accuracy(*gallery, queries, labels), each


def _accuracies(
    data: Data, checkpoints: dict[str, Path], out: Path, seed: int, train: Split, test: Split
) -> dict[str, dict[str, float]]:
    """Linear benchmark of the host and kNN of each checkpoint, top-1 in percent."""

    def linear(name: str) -> float:
        folder = out / f"linear_{name}"
        try:
            return linear_top1(folder)["res5"]
        except ValueError:  # not finished
            shutil.rmtree(folder, ignore_errors=True)
        overrides = [*quick_linear(data, checkpoints[name]), f"config.SEED_VALUE={seed}"]
        run_host(overrides, folder, f"linear, {name}", threads=1)
        return linear_top1(folder)["res5"]

    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:  # one core each
        linears = list(pool.map(linear, checkpoints))
    return {
        name: {
            "linear_top1": round(top1, 2),
            "knn_top1": round(knn_by_class(train, test, name)[0], 2),
        }
        for name, top1 in zip(checkpoints, linears, strict=True)
    }


def _print_summary(results: dict[str, Any], out: Path) -> None:
    if "pirl" in results:
        print(f"\n{'':24}{'linear':>8}{'kNN':>8}   (top-1, percent)")
        for name, label in (("random", "random initialisation"), ("pirl", "PIRL")):
            row = results[name]
            print(f"{label:24}{row['linear_top1']:8.1f}{row['knn_top1']:8.1f}")
    print(f"\n{results['seconds'] / 60:.1f} minutes. Open {out / 'report.html'}")
