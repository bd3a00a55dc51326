"""One model of the comparison: pre-trained through the host's engine, evaluated at its points."""

from __future__ import annotations

import functools
import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch

from pirl_plugin.data.sources.paths import class_folders
from pirl_plugin.evaluation.features import read_images, trunk_features
from pirl_plugin.evaluation.knn import knn_accuracy
from pirl_plugin.evaluation.linear_run import linear_top1
from pirl_plugin.experiments.claims.clock import Clock, checkpoints, costs, remove_partial
from pirl_plugin.experiments.claims.invariance import add_invariance, lacks_invariance
from pirl_plugin.experiments.claims.methods import METHODS, pretraining
from pirl_plugin.experiments.claims.plan import Job, evaluated
from pirl_plugin.experiments.claims.provenance import made_with
from pirl_plugin.experiments.data import quick_linear
from pirl_plugin.experiments.launchers import Here
from pirl_plugin.experiments.runs import Run
from pirl_plugin.models.load import load_trunk, save_trunk
from pirl_plugin.models.resnet import new_trunk
from pirl_plugin.utils.outputs import claim_folder, write_json

if TYPE_CHECKING:
    from pirl_plugin.experiments.claims.claims_file import ClaimRow, Measured, Point, Seconds
    from pirl_plugin.experiments.claims.scales import Scale
    from pirl_plugin.experiments.claims.workspace import Workspace


def make(job: Job, workspace: Workspace) -> ClaimRow:
    """Pre-train and evaluate a model, or go on where that stopped.

    Returns:
        Its row of ``claims.json``; without its invariance where that could not be measured.

    Raises:
        SystemExit: a run of the host failed.
        OSError: its folder cannot be written.
        ValueError: its folder holds what another recipe made.
    """
    torch.set_num_threads(workspace.threads)
    folder = workspace.out / job.name
    made = made_with(job, workspace)
    claim_folder(folder, {"recipe": made["recipe"]}, "recipe.json", "recipe")
    points = evaluated(job.epochs, workspace.step)
    found = _random(job, workspace, folder) if job.method == "random" else None
    found = found or _pretrain(job, workspace, folder, points)
    spent = costs(folder / "pretrain", points)
    began = time.monotonic()
    measured: list[Point] = []
    for epoch in points:
        measured.append(
            {
                "epoch": epoch,
                "images_seen": epoch * workspace.data.num_train,
                **_seconds(spent[epoch], workspace.scale),
                **_evaluate(job, workspace, found[epoch], folder, epoch),
            }
        )
    final = {name: value for name, value in measured[-1].items() if name != "epoch"}
    more = {"evaluation_seconds": round(time.monotonic() - began, 1), "made_with": made}
    row = cast("ClaimRow", {**job.row(), **final, **more, "points": measured})
    if lacks_invariance(row) and (said := add_invariance(row, found[points[-1]], workspace)):
        print(said, file=sys.stderr, flush=True)
    return row


def _seconds(cost: dict[str, float] | None, scale: Scale) -> Seconds:
    """None where nobody saw what the run costs."""
    if cost is None:
        return {"seconds": None, "wall_seconds": None}
    seconds = cost["cpu"] if scale.cpu_time and cost["cpu"] else cost["wall"]
    return {"seconds": round(seconds, 1), "wall_seconds": round(cost["wall"], 1)}


def _random(job: Job, workspace: Workspace, folder: Path) -> dict[int, Path]:
    """A trunk that was not trained."""
    file = folder / "pretrain" / "random.torch"
    file.parent.mkdir(exist_ok=True)
    torch.manual_seed(job.seed)
    save_trunk(new_trunk(workspace.scale.trunk), file)
    return {0: file}


def _pretrain(job: Job, workspace: Workspace, folder: Path, points: list[int]) -> dict[int, Path]:
    """Epoch → checkpoint."""
    overrides = pretraining(
        job.method, workspace.scale, workspace.data, job.epochs, job.seed, job.overrides
    )
    run = Run(job.title, folder / "pretrain", overrides)
    finish(run, workspace.threads, points)
    found = checkpoints(run.folder)
    missing = [epoch for epoch in points if epoch not in found]
    if missing:
        raise SystemExit(
            f"pirl_plugin: {run.title}: {run.folder} has no checkpoint of epochs {missing}; remove "
            f"the folder, and start the command again"
        )
    return found


def finish(run: Run, threads: int, points: list[int] | None = None) -> None:
    """Make a run, or go on with it; wait where a process of an earlier command is still at it.

    Args:
        run: what is made.
        threads: of it.
        points: epochs whose checkpoints stay, in a run that is timed.
    """
    run.folder.mkdir(exist_ok=True)
    here = Here(threads)
    if here.under_way(run):
        print(f"{run.title}: under way already; waiting for it", flush=True)
        with nullcontext() if points is None else Clock(run.folder, points, under_way=True):
            while here.under_way(run):
                time.sleep(here.interval)
    if not run.finished():
        remove_partial(run.folder)
        with nullcontext() if points is None else Clock(run.folder, points):
            here.start(run)


def _evaluate(
    job: Job, workspace: Workspace, checkpoint: Path, folder: Path, epoch: int
) -> Measured:
    """Run the host's linear benchmark of every layer, and kNN; what is measured is not again."""
    file = folder / f"evaluation_{epoch}.json"
    if file.is_file():
        measured: Measured = json.loads(file.read_text())
        return measured
    run = Run(
        f"{METHODS[job.method].label}, seed {job.seed}, epoch {epoch}: linear",
        folder / f"linear_{epoch}",
        (
            *quick_linear(workspace.data, checkpoint),
            f"+config/pirl/linear={workspace.scale.model}",
            f"config.SEED_VALUE={job.seed}",
            *workspace.scale.linear,
        ),
        measures=True,
    )
    finish(run, workspace.threads)
    layers = {layer: round(top1, 2) for layer, top1 in linear_top1(run.folder).items()}
    best = max((layer for layer in layers if layer != "res5avg"), key=lambda layer: layers[layer])
    measured = {
        "linear_top1": layers.get("res5avg", layers["res5"]),
        "knn_top1": round(knn_top1(checkpoint, workspace), 2),
        "linear_by_layer": layers,
        "linear_best_top1": layers[best],
        "best_layer": best,
    }
    torch.cuda.empty_cache()  # the next run of the host is another process, on the same GPU
    write_json(file, measured)
    for weights in run.folder.glob("*.torch"):  # measured: nobody reads them again
        weights.unlink()
    return measured


def knn_top1(checkpoint: Path, workspace: Workspace) -> float:
    """Top-1 of the kNN classifier (k = 20) on the trunk's pooled res5 features, percent."""
    size = workspace.scale.image_size
    device = "cuda" if workspace.scale.machine != "cpu" and torch.cuda.is_available() else "cpu"
    trunk = load_trunk(checkpoint).to(device)
    features, labels = [], []
    for split in (workspace.data.train, workspace.data.val):
        images, numbers = _labelled_images(Path(str(split)), workspace.data.train, size)
        features.append(trunk_features(trunk, images))
        labels.append(numbers)
    return knn_accuracy(features[0], labels[0], features[1], labels[1])


@functools.lru_cache(maxsize=2)
def _labelled_images(split: Path, train: Path, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """uint8 ``(N, 3, size, size)`` and int64 ``(N,)`` classes, the folders of ``train`` by name."""
    images, paths = read_images(split, size)
    numbers = {name: number for number, name in enumerate(class_folders(str(train)))}
    labels = torch.tensor([numbers.get(Path(path).parts[0], -1) for path in paths])
    return images[labels >= 0], labels[labels >= 0]  # images outside the classes' folders have none
