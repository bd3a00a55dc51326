"""Train and evaluate every model in the comparison, then write verdicts, tables and figures.

    python extra_scripts/claims/run.py --data DIR --out OUT

``DIR`` holds ``train/CLASS/*`` and ``val/CLASS/*``. Each model is pre-trained with ``pirl-plugin
train``. After each quarter, VISSL's linear benchmark evaluates every layer, and kNN the last one.
For models in ``PAIRS``, invariance is measured too. Finished models are recorded in
``OUT/claims.json``, and VISSL resumes the others: run the same command again to continue.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from recorded import versions
from report import write_report
from torchvision.datasets import ImageFolder
from training import fast_precision
from verdicts import COMPARISON, LAYERS, METHODS, SWEEPS, main_epochs, sweep_epochs, verdicts

from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.evaluation.finished_runs import final_accuracy
from pirl_plugin.models.resnet import WideResNet
from pirl_plugin.system.arguments import Parser
from pirl_plugin.system.cores import processor_name
from pirl_plugin.system.files import claim_folder, write_json
from pirl_plugin.system.processes import own_command

NETWORK = COMPARISON["network"]
RECIPES = COMPARISON["recipes"]
PAIRS = ("pirl_jigsaw", "jigsaw", "pirl_rotation", "rotation")  # compare distances between these
SIZE = ("--size", str(NETWORK["image_size"]))
_, *PLUGIN = own_command()  # the arguments after the interpreter
INVARIANCE = Path(__file__).parents[1] / "paper" / "invariance.py"
PACKAGES = ("pirl-plugin", "vissl", "torch", "torchvision", "numpy", "numba")


@dataclass(frozen=True)
class Job:
    """One model: a method, seed and length, and (sweep, value) if it differs from the default."""

    method: str
    seed: int
    epochs: int
    changed: tuple[tuple[str, float], ...] = ()

    @property
    def name(self) -> str:
        """The folder name, such as ``pirl_jigsaw_lambda0.25_12epochs_seed0``."""
        values = "".join(f"_{sweep}{value}" for sweep, value in self.changed)
        return f"{self.method}{values}_{self.epochs}epochs_seed{self.seed}"


def job_of(row: dict[str, Any]) -> Job:
    """Return the job behind a row in ``claims.json``."""
    return Job(row["method"], row["seed"], row["epochs"], tuple(row["changed"].items()))


def plan(methods: list[str], sweeps: list[str], seeds: int, epochs: int) -> list[Job]:
    """Return all jobs in starting order: the comparison first, seed by seed.

    All sweeps share one model for the default value.
    """
    jobs = [Job(m, seed, main_epochs(m, epochs)) for seed in range(seeds) for m in methods]
    for seed, name in itertools.product(range(seeds), sweeps):
        for method, values in SWEEPS[name]["values"].items():
            for value in values:
                changed = () if value == SWEEPS[name]["default"][method] else ((name, value),)
                jobs.append(Job(method, seed, sweep_epochs(epochs), changed))
    return list(dict.fromkeys(jobs))


def pretraining(job: Job, recipe: str, data: Path, classes: int) -> list[str]:
    """Return Hydra overrides for a job's pre-training, without the folder."""
    method = METHODS[job.method]
    loss = RECIPES[recipe]["loss"]
    words = [f"config={method['config']}"]
    words += [word.format(data=data, job=job) for word in COMPARISON["shared"]]
    if job.method == "vissl_pirl":  # keeps all checkpoints
        words.append(f"config.LOSS.nce_loss_with_memory.temperature={loss['temperature']}")
    else:
        words.append("config.CHECKPOINT.PIRL.KEEP_LAST=0")
    if job.method == "supervised":
        words.append(f"config.MODEL.HEAD.NUM_CLASSES={classes}")
    if "view" in method:
        photometric = "photometric:${config.DATA.TRAIN.PHOTOMETRIC}"
        words += [
            f"+config/pirl/models={NETWORK['model']}",
            f"config.DATA.TRAIN.TRANSFORMS=[{{{method['view']},{photometric}}}]",
            f"config.HOOKS.PIRL_INPUT.autocast={autocast()}",
        ]
    if "negatives" in method:
        settings = {**loss, "bank.seed": job.seed, "num_negatives": method["negatives"]}
        words += [f"config.LOSS.pirl_loss.{key}={value}" for key, value in settings.items()]
    if "inputs" in method:
        heads = method["inputs"]  # input → head
        words.append(f"config.DATA.TRAIN.INPUT_KEY_NAMES=[{','.join(heads)}]")
        words.append(f"config.MODEL.HEAD.PARAMS=[{','.join(heads.values())}]")
    words += method.get("overrides", [])
    words += [f"{SWEEPS[name]['key']}={value}" for name, value in job.changed]
    return words


def autocast() -> str:
    """Return the value for ``HOOKS.PIRL_INPUT.autocast``."""
    return "bfloat16" if fast_precision() == "bfloat16" else "null"


def run(command: Sequence[str | Path], folder: Path) -> float | None:
    """Run a Python program on one core, unless it has finished.

    Args:
        command: the arguments after ``python``.
        folder: folder for the log.

    Returns:
        CPU seconds, including child processes; None for a resumed run, whose first part was not
        counted.

    Raises:
        RuntimeError: the command failed.
    """
    seconds_file = folder / "seconds.json"
    if seconds_file.is_file():
        return json.loads(seconds_file.read_text())
    is_resumed = folder.is_dir()
    folder.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, *command]
    log = folder / "console.log"
    with log.open("a") as output:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(words, stdout=output, stderr=output, env=environment)
        _, status, used = os.wait4(process.pid, 0)
    if status:
        last_line = log.read_text(errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"{folder} failed: {last_line} (full log: {log})")
    seconds = None if is_resumed else used.ru_utime + used.ru_stime
    write_json(seconds_file, seconds)
    return seconds


class Comparison:
    """Images, settings and folder shared by all models.

    Args:
        options: the command's options.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.recipe = options.recipe
        self.data = options.data.resolve()
        self.out = options.out
        train = ImageFolder(self.data / "train")
        val = ImageFolder(self.data / "val")
        self.classes = len(train.classes)
        self.num_train = len(train)
        self.epochs = max(1, round(options.images_seen / len(train)))
        images = {"classes": self.classes, "train_images": len(train), "val_images": len(val)}
        self.setting = {
            "recipe": options.recipe,
            "network": NETWORK,
            "data": {"name": self.data.name, **images},
            "images_seen": self.epochs * len(train),
            "epochs": self.epochs,
            "sweep_epochs": sweep_epochs(self.epochs),
            "hardware": f"{processor_name()}, {os.cpu_count()} cores, 1 thread(s) a run",
            "precision": fast_precision(),
            "versions": versions(PACKAGES),
            "about": f"{COMPARISON['about']}; PIRL with {RECIPES[options.recipe]['about']}",
            **COMPARISON["setting"],
        }

    def make(self, job: Job) -> dict[str, Any]:
        """Pre-train and evaluate a model: its row in ``claims.json``."""
        folder = self.out.resolve() / "runs" / job.name
        seconds = self.pretrain(job, folder / "pretrain")
        quarter = max(1, job.epochs // 4)
        epochs = [*range(quarter, job.epochs, quarter), job.epochs]
        if job.epochs <= sweep_epochs(self.epochs):  # sweeps compare only final models
            epochs = [job.epochs]
        needed = {checkpoint(folder, epoch, job) for epoch in epochs}
        for file in {*(folder / "pretrain").glob("model_phase*.torch")} - needed:
            file.unlink()
        points = []
        for epoch in epochs:
            point = {"epoch": epoch, "images_seen": epoch * self.num_train, "seconds": None}
            if seconds is not None:
                point["seconds"] = round(seconds * epoch / max(1, job.epochs), 1)
            points.append(point | self.evaluate(folder, epoch, job))
        row = {**points[-1], **vars(job), "changed": dict(job.changed), "points": points}
        row.pop("epoch")
        if job.method in PAIRS and not job.changed:
            row["invariance"] = self.invariance(folder, job)
        row["finished"] = time.strftime("%Y-%m-%d")
        row["made_with"] = {key: self.setting[key] for key in ("precision", "versions", "hardware")}
        return row

    def pretrain(self, job: Job, folder: Path) -> float | None:
        """Train, or write an untrained trunk; see :func:`run`."""
        if job.method == "random":
            folder.mkdir(parents=True, exist_ok=True)
            torch.manual_seed(job.seed)
            save_trunk(WideResNet(10, 0.5), folder / "random.torch")
            return 0.0
        words = pretraining(job, self.recipe, self.data, self.classes)
        return run([*PLUGIN, "train", *words, f"config.CHECKPOINT.DIR='{folder}'"], folder)

    def evaluate(self, folder: Path, epoch: int, job: Job) -> dict[str, Any]:
        """Return each layer's linear accuracy and the kNN accuracy after an epoch, in percent."""
        linear = folder / f"linear_{epoch}"
        knn = folder / f"knn_{epoch}"
        trained = checkpoint(folder, epoch, job)
        values = {"data": self.data, "classes": self.classes, "checkpoint": trained, "job": job}
        words = [word.format(out=linear, **values) for word in COMPARISON["linear"]]
        run([*PLUGIN, "train", *words], linear)
        words = ["--checkpoint", trained, "--data", self.data, "--out", knn, *SIZE]
        run([*PLUGIN, "knn", *words], knn)
        layers = {layer: round(top1, 2) for layer, top1 in final_accuracy(linear).items()}
        best = max(LAYERS, key=lambda layer: layers[layer])
        return {
            "linear_top1": layers["res5avg"],
            "knn_top1": round(json.loads((knn / "results.json").read_text())["knn_top1"], 2),
            "linear_by_layer": layers,
            "linear_best_top1": layers[best],
            "best_layer": best,
        }

    def invariance(self, folder: Path, job: Job) -> dict[str, Any]:
        """Return distances between images and their transformed versions."""
        out = folder / "invariance"
        trained = checkpoint(folder, job.epochs, job)
        words = ["--checkpoint", trained, "--data", self.data / "val", "--out", out, *SIZE]
        run([INVARIANCE, *words, "--images", "500"], out)
        measured = json.loads((out / "invariance.json").read_text())
        (model,) = measured["models"]
        return {
            "images": measured["images"],
            "compared": model["representation"],
            **distances(model["heads"]),
            "own_statistics": distances(model["own_statistics"]),
        }


def distances(model: dict[str, Any]) -> dict[str, float]:
    """Summarize the distances in ``invariance.json``."""
    return {
        "mean": round(model["same"]["mean"], 4),
        "std": round(model["same"]["std"], 4),
        "different_mean": round(model["different"]["mean"], 4),
    }


def checkpoint(folder: Path, epoch: int, job: Job) -> Path:
    """Return a job's checkpoint after an epoch."""
    kind = "model_final_checkpoint_phase" if epoch == job.epochs else "model_phase"
    return folder / "pretrain" / (f"{kind}{epoch - 1}.torch" if job.epochs else "random.torch")


def main() -> None:
    """Run the command; it stops at the first model that fails."""
    parser = Parser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="train/CLASS/*, val/CLASS/*")
    parser.add_argument("--out", type=Path, required=True, help="claims.json, figures, runs")
    parser.add_argument(
        "--recipe", choices=[*RECIPES], default="paper", help="loss settings (default: %(default)s)"
    )
    parser.add_argument("--methods", nargs="+", choices=[*METHODS], default=[*METHODS])
    parser.add_argument("--sweeps", nargs="*", choices=[*SWEEPS], default=[*SWEEPS])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--images-seen",
        type=int,
        default=240_000,
        help="images seen per model (default: %(default)s)",
    )
    options = parser.parse_args()
    comparison = Comparison(options)
    file = options.out / "claims.json"
    claim_folder(options.out, {key: comparison.setting[key] for key in ("recipe", "images_seen")})
    content: dict[str, Any] = {"setting": comparison.setting, "runs": []}
    if file.is_file():
        content |= json.loads(file.read_text("utf-8"))
    jobs = plan(options.methods, options.sweeps, options.seeds, comparison.epochs)
    finished = {job_of(row) for row in content["runs"]}
    unfinished = [job for job in jobs if job not in finished]
    write_all(file, content)
    for number, job in enumerate(unfinished, 1):
        row = comparison.make(job)
        content["runs"].append(row)
        write_all(file, content)
        accuracy = f"linear {row['linear_top1']}, kNN {row['knn_top1']}"
        print(f"{number} of {len(unfinished)}: {job.name}: {accuracy}", flush=True)


def write_all(file: Path, content: dict[str, Any]) -> None:
    """Write ``claims.json`` with its verdicts, the tables and the figures."""
    content["claims"] = verdicts(content)
    write_json(file, content)
    write_report(file.parent, content)


if __name__ == "__main__":
    main()
