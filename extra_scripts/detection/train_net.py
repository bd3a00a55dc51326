"""Train a detector from a checkpoint and measure AP, AP50 and AP75."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import detectron2_setup
from trial import CONFIG, METRICS, RESULT

from pirl_plugin import cli
from pirl_plugin.system.arguments import Parser, WholeNumber, output_folder, user_path
from pirl_plugin.system.files import claim_folder, locked, sha256_of, write_json, write_text
from pirl_plugin.system.watcher import watching

if TYPE_CHECKING:
    from detectron2.config import CfgNode

LOG = "console.log"
TRIAL = Path(__file__).with_name("trial.py")


def main(arguments: list[str]) -> int:
    """Run the command; return the exit status, 1 if a trial failed."""
    options = _parse(arguments)
    if options.data:  # set before Detectron2 is imported, which reads it
        os.environ["DETECTRON2_DATASETS"] = str(options.data.resolve())
    detectron2_setup.require_detectron2()
    with locked(options.out, "--out"):
        return _run_trials(options)


def _run_trials(options: argparse.Namespace) -> int:
    run, config = prepare(options)
    failed: list[dict[str, Any]] = []
    for seed in range(options.trials):
        folder = options.out / f"trial_{seed}"
        state = "finished" if (folder / RESULT).is_file() else "running"
        print(f"Seed {seed}, {state}: {folder / LOG}", flush=True)
        with watching():
            trial = run_trial(config, folder, seed, options.num_gpus)
        if "error" in trial:
            failed.append(trial)
        # Trials from earlier calls count too. Write the file after each trial, which takes hours.
        finished = [json.loads(file.read_text()) for file in options.out.glob(f"trial_*/{RESULT}")]
        finished.sort(key=lambda result: int(result["seed"]))
        trials = [*finished, *failed]
        summary = summarize(trials)
        run["requested"] = max(options.trials, len(trials))
        write_json(options.out / "results.json", {**run, "trials": trials, **summary})
    print(f"\n{options.config}, {run['metric']}\n{table(summary)}")
    for trial in failed:
        print(f"Seed {trial['seed']} failed: {trial['error']}", file=sys.stderr)
    return 1 if failed else 0


def prepare(options: argparse.Namespace) -> tuple[dict[str, object], CfgNode]:
    """Export the checkpoint and check the data, before hours of training.

    Returns:
        The run's entries in ``results.json``, and the configuration without seed and folder.
    """
    from detectron2.data import DatasetCatalog

    from pirl_plugin.checkpoints.export import export_checkpoint
    from pirl_plugin.checkpoints.formats import detectron2_options
    from pirl_plugin.vissl.resume.record import read_origin

    # The data sets are read now, so that a wrong folder ends the command at once.
    config = detectron2_setup.load_config(
        detectron2_setup.find_config(options.config), options.options
    )
    if options.num_gpus is None:
        import torch

        options.num_gpus = 0 if config.MODEL.DEVICE == "cpu" else torch.cuda.device_count()
    images = {
        name: len(DatasetCatalog.get(name))
        for name in (*config.DATASETS.TRAIN, *config.DATASETS.TEST)
    }
    # Shared by all trials in the folder, which other runs may not use.
    checkpoint = options.checkpoint.resolve()
    weights = options.out / "weights.pkl"
    run: dict[str, object] = {
        "config": options.config,
        "options": options.options,
        "images": images,
        "weights": str(checkpoint),
        "weights_sha256": sha256_of(checkpoint),
        "num_gpus": options.num_gpus,
        "config_sha256": hashlib.sha256(str(config.dump()).encode()).hexdigest(),
    }
    claim_folder(options.out, run)
    # Where the weights come from, for results.py.
    run["origin"] = read_origin(checkpoint)
    with checkpoint.open("rb") as file:
        run["weights_md5"] = hashlib.file_digest(file, "md5").hexdigest()
    # The network's options follow from the exported trunk.
    trunk = export_checkpoint(checkpoint, weights, "detectron2", trunk=options.trunk)
    config.merge_from_list(["MODEL.WEIGHTS", str(weights)])
    for key, value in detectron2_options(trunk).items():
        config.merge_from_list([key, value])
    run["metric"] = detectron2_setup.metric_kind(config.DATASETS.TEST[0])
    run["network"] = trunk.network_config.name
    run["versions"] = detectron2_setup.versions()
    return run, config


def run_trial(config: CfgNode, folder: Path, seed: int, num_gpus: int) -> dict[str, Any]:
    """Run an unfinished trial from the last checkpoint, in a separate process.

    The output goes to ``console.log``.

    Returns:
        The result; ``seed`` and ``error`` if the trial failed.
    """
    if not (folder / RESULT).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        config = config.clone()
        config.merge_from_list(["SEED", seed, "OUTPUT_DIR", str(folder)])
        write_text(folder / CONFIG, config.dump())
        command = [sys.executable, str(TRIAL), str(folder), str(num_gpus)]
        with (folder / LOG).open("a") as log:
            process = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
        if process.returncode != 0 or not (folder / RESULT).is_file():
            last_line = (folder / LOG).read_text(errors="replace").strip().rpartition("\n")[2]
            return {"seed": seed, "error": f"exit status {process.returncode}: {last_line}"}
    result: dict[str, Any] = json.loads((folder / RESULT).read_text())
    return result


def summarize(trials: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return mean and standard deviation over the trials without ``error``, in percent.

    Returns:
        ``finished``, the number of these trials; ``mean`` and ``sd`` by metric. ``sd`` is the
        sample standard deviation (n − 1), None for fewer than two trials. ``mean`` is None without
        a trial.
    """
    finished = [trial for trial in trials if "error" not in trial]
    summary: dict[str, Any] = {"finished": len(finished), "mean": None, "sd": None}
    values = {metric: [trial[metric] for trial in finished] for metric in METRICS}
    if finished:
        summary["mean"] = {metric: statistics.mean(values[metric]) for metric in METRICS}
    if len(finished) > 1:
        summary["sd"] = {metric: statistics.stdev(values[metric]) for metric in METRICS}
    return summary


def table(summary: Mapping[str, Any]) -> str:
    """Format the figures as a line: mean ± standard deviation over the finished trials.

    Example:
        >>> metrics = {"AP": 44.5, "AP50": 73.0, "AP75": 47.0}
        >>> table({"finished": 1, "mean": metrics, "sd": None})
        '1 finished: AP 44.5, AP50 73.0, AP75 47.0'
    """
    mean = summary["mean"] or {}
    deviation = summary["sd"] or {}
    cells = []
    for metric, value in mean.items():
        spread = f" ± {deviation[metric]:.1f}" if deviation else ""
        cells.append(f"{metric} {value:.1f}{spread}")
    return f"{summary['finished']} finished: {', '.join(cells)}"


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog="train_net.py",
        description="Train a detector from a checkpoint, and measure AP, AP50 and AP75.\nExample: "
        "python extra_scripts/detection/train_net.py --config voc07_pirl --checkpoint CHECKPOINT "
        "--data VOCdevkit",
    )
    add = parser.add_argument
    add("--config", required=True, help="a name, such as voc07_pirl, or a path")
    add("--checkpoint", required=True, type=user_path, help="any file that export reads")
    add("--data", type=user_path, help="folder with VOC2007, VOC2012, coco")
    add("--out", type=output_folder, help="folder (default: runs/detection/CONFIG_CHECKPOINT)")
    add("--num-gpus", type=int, help="GPUs per trial (default: all)")
    add(
        "--trials",
        type=WholeNumber(1),
        default=1,
        help="number of trials, with seeds 0, 1, … (default: %(default)s)",
    )
    add("--trunk", metavar="NAME", help="as in pirl-plugin export")
    add("options", nargs="*", metavar="KEY VALUE", help="Detectron2 options")
    options = parser.parse_args(arguments)
    name = f"{Path(options.config).stem}_{options.checkpoint.stem}"
    options.out = options.out or output_folder(f"runs/detection/{name}")
    return options


if __name__ == "__main__":
    cli.main(main)
