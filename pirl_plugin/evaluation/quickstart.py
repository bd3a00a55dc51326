"""``pirl-plugin quickstart``: pre-train, evaluate and report, in minutes on a CPU."""

from __future__ import annotations

import argparse
import json
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from pirl_plugin.data.sample.scenes import write_sample_dataset
from pirl_plugin.evaluation.features import (
    load_trunk,
    new_trunk,
    read_images,
    save_trunk,
    trunk_features,
)
from pirl_plugin.evaluation.host_run import run_host
from pirl_plugin.evaluation.knn import knn_accuracy
from pirl_plugin.evaluation.linear_run import linear_top1
from pirl_plugin.evaluation.quickstart_data import (
    IMAGE_SIZE,
    TRUNK,
    Data,
    find_data,
    quick_epochs,
    quick_linear,
)
from pirl_plugin.evaluation.quickstart_report import write_quickstart_report
from pirl_plugin.overrides import quoted
from pirl_plugin.requirements import require_host


def main(arguments: list[str]) -> None:
    """Run the command.

    Raises:
        SystemExit: data that cannot be used, or a run that failed.
    """
    options = _parse(arguments)
    require_host()
    start = time.perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    data = find_data(options.data or _sample_data(options.out))
    epochs = options.epochs or quick_epochs(data)
    _claim(options.out, {"data": str(data.train), "epochs": epochs, "seed": options.seed})
    print(f"{data.num_train} images in {data.train}; {epochs} epochs", flush=True)

    torch.manual_seed(options.seed)
    random_init = options.out / "random_init.torch"
    save_trunk(new_trunk(TRUNK), random_init)
    pretrained, rate = pretrain(data, options.out / "pretrain", epochs, options.seed)

    checkpoints = {"random": random_init, "pirl": pretrained}
    accuracies = evaluate(data, checkpoints, options.out, options.seed)
    results: dict[str, Any] = {
        **accuracies,
        "seed": options.seed,
        "epochs": epochs,
        "images_per_s": round(rate or 0.0, 1),  # 0 where pre-training was finished already
        "seconds": round(time.perf_counter() - start, 1),
    }
    (options.out / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    command = shlex.join(["pirl-plugin", "quickstart", *arguments])
    write_quickstart_report(options.out, data, checkpoints, results, command)
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
    data: Data, checkpoints: dict[str, Path], out: Path, seed: int
) -> dict[str, dict[str, float]]:
    """Linear benchmark of the host and kNN, of each checkpoint; nothing without labels."""
    if data.val is None:
        print("No train/<class> and val/<class> folders: nothing to evaluate on.", flush=True)
        return {}
    accuracies: dict[str, dict[str, float]] = {}
    for name, checkpoint in checkpoints.items():
        trunk = load_trunk(checkpoint)
        features, labels = [], []
        for folder in (data.train, data.val):
            images, paths = read_images(folder, IMAGE_SIZE)
            features.append(trunk_features(trunk, images))
            labels.append(_class_numbers(data, paths))
        knn = knn_accuracy(features[0], labels[0], features[1], labels[1])
        accuracies[name] = {"knn_top1": round(knn, 2)}
    with ThreadPoolExecutor() as pool:  # one core each: the two runs share nothing
        for name, linear in pool.map(
            lambda name: (name, _linear(data, checkpoints[name], out / f"linear_{name}", seed)),
            checkpoints,
        ):
            accuracies[name] = {"linear_top1": round(linear, 2), **accuracies[name]}
    return accuracies


def _linear(data: Data, checkpoint: Path, out: Path, seed: int) -> float:
    """Top-1 of the host's linear benchmark at its end, percent."""
    overrides = [*quick_linear(data, checkpoint), f"config.SEED_VALUE={seed}"]
    run_host(overrides, out, f"linear, {out.name.removeprefix('linear_')}", threads=1)
    return linear_top1(out)["res5"]


def _claim(out: Path, run: dict[str, Any]) -> None:
    """Make ``out`` the folder of this run; the same run again goes on where it stopped.

    Raises:
        SystemExit: the folder holds another run, whose checkpoints the host would take for ours.
    """
    file = out / "run.json"
    before = json.loads(file.read_text()) if file.is_file() else run
    if before != run:
        differences = ", ".join(f"{k} {before.get(k)} (now {v})" for k, v in run.items())
        raise SystemExit(
            f"pirl_plugin: {out} holds the run of {differences}: give another folder with --out, "
            f"or remove this one"
        )
    file.write_text(json.dumps(run, indent=2) + "\n")


def _class_numbers(data: Data, paths: list[str]) -> torch.Tensor:
    """int64 class of each path, by the names of ``train``'s subfolders."""
    names = sorted(p.name for p in data.train.iterdir() if p.is_dir())
    return torch.tensor([names.index(Path(path).parts[0]) for path in paths])


def _sample_data(out: Path) -> Path:
    folder = out / "sample_data"
    print(f"Drawing sample images into {folder}", flush=True)
    write_sample_dataset(folder)
    return folder


def _print_summary(results: dict[str, Any], out: Path) -> None:
    if "pirl" in results:
        print(f"\n{'':24}{'linear':>8}{'kNN':>8}   (top-1, percent)")
        for name, label in (("random", "random initialisation"), ("pirl", "PIRL")):
            row = results[name]
            print(f"{label:24}{row['linear_top1']:8.1f}{row['knn_top1']:8.1f}")
    print(f"\n{results['seconds'] / 60:.1f} minutes. Open {out / 'report.html'}")


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pirl-plugin quickstart", description=__doc__)
    parser.add_argument("--data", type=Path, help="train/<class>/*, val/<class>/*, or images")
    parser.add_argument("--out", type=Path, default=Path("runs/quickstart"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, help="default: 120,000 images in all")
    options = parser.parse_args(arguments)
    options.out = options.out.resolve()
    if options.data is not None:
        options.data = options.data.resolve()
    return options
