"""``pirl-plugin detection``: from a checkpoint to AP, AP50 and AP75, in one command."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.arguments import (
    HelpFormatter,
    output_folder,
    user_path,
    whole_number,
)
from pirl_plugin.detection.results import summarize, table
from pirl_plugin.detection.setup import (
    check_data,
    check_machine,
    check_weights,
    find_config,
    load_config,
    metric_kind,
    require_detectron2,
    versions,
)
from pirl_plugin.detection.trial import CONFIG, RESULT
from pirl_plugin.files import check_folder, claim_folder, write_json, write_text
from pirl_plugin.processes import ended_by_sigterm, stream

if TYPE_CHECKING:
    from detectron2.config import CfgNode


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status, 1 if a trial failed.

    Raises:
        SystemExit: Detectron2, the config, the weights, the data or the machine will not do.
    """
    options = _parse(arguments)
    try:
        find_config(options.config)
    except ValueError as error:
        raise SystemExit(f"pirl_plugin: {error}") from None
    if not options.weights.is_file():
        raise SystemExit(f"pirl_plugin: --weights {options.weights}: expected a file; name one")
    if options.data:  # before Detectron2 is imported, which reads it then
        os.environ["DETECTRON2_DATASETS"] = str(options.data.resolve())
    require_detectron2()
    try:
        run, config = prepare(options)
    except (OSError, ValueError) as error:
        raise SystemExit(f"pirl_plugin: {error}") from None
    failed: list[dict[str, Any]] = []
    for seed in range(options.seed, options.seed + options.trials):
        folder = options.out / f"trial_{seed}"
        if (folder / RESULT).is_file():
            print(f"Seed {seed} is finished: {folder / RESULT}", flush=True)
        else:
            print(f"Seed {seed}: {folder}", flush=True)
        with ended_by_sigterm():
            trial = run_trial(config, folder, seed, options.num_gpus)
        failed += [trial] if "error" in trial else []
        trials = [*finished_trials(options.out), *failed]
        summary = summarize(trials)
        write_json(options.out / "results.json", {**run, "trials": trials, **summary})
    print(f"\n{options.config}, {run['metric']}\n{table(Path(options.config).stem, summary)}")
    for trial in failed:
        print(f"Seed {trial['seed']} failed: {trial['error']}", file=sys.stderr)
    return 1 if failed else 0


def prepare(options: argparse.Namespace) -> tuple[dict[str, object], CfgNode]:
    """Check everything that can be checked before hours of training.

    Returns:
        What ``results.json`` says of the run, and its configuration without seed and folder.

    Raises:
        OSError, ValueError: what will not do, in a sentence.
    """
    from pirl_plugin.checkpoints.export import export_checkpoint
    from pirl_plugin.checkpoints.read import read_checkpoint
    from pirl_plugin.checkpoints.trunk import find_trunk

    file = find_config(options.config)
    config = load_config(file, options.options)
    if options.num_gpus is None:
        import torch

        options.num_gpus = 0 if config.MODEL.DEVICE == "cpu" else torch.cuda.device_count()
    check_machine(config, options.num_gpus)
    check_data(config)
    weights = options.weights.resolve()
    run = {
        "config": options.config,
        "options": options.options,
        "weights": str(weights),
        "weights_sha256": _sha256(weights.read_bytes()),
        "num_gpus": options.num_gpus,
        "config_sha256": _sha256(_without_places(config).encode()),
    }
    check_folder(options.out, run)
    if weights.suffix != ".pkl":
        exported = options.out / "weights.pkl"
        export_checkpoint(
            weights, exported, "detectron2", trunk=options.trunk, trust_pickle=options.trust_pickle
        )
        print(f"Exported {weights} to {exported}", flush=True)
        weights = exported
    trunk = find_trunk(read_checkpoint(weights), str(weights))
    check_weights(config, trunk)
    config.MODEL.WEIGHTS = str(weights)
    claim_folder(options.out, run)
    metric = metric_kind(config.DATASETS.TEST[0])
    return {**run, "metric": metric, "network": trunk.title, "versions": versions()}, config


def run_trial(config: CfgNode, folder: Path, seed: int, num_gpus: int) -> dict[str, Any]:
    """Run a trial that is not finished, on from its last checkpoint, in a process of its own.

    Returns:
        Its result, or ``seed`` and ``error`` where it failed.
    """
    if not (folder / RESULT).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        config = config.clone()
        config.merge_from_list(["SEED", seed, "OUTPUT_DIR", str(folder)])
        write_text(folder / CONFIG, config.dump())
        quiet = ["-W", "ignore::FutureWarning:torch.jit._script"]
        command = [sys.executable, *quiet, "-m", "pirl_plugin.detection.trial"]
        log = folder / "console.log"
        ended = stream([*command, str(folder), str(num_gpus)], _print_line, log, append=True)
        if ended.status != 0 or not (folder / RESULT).is_file():
            return {
                "seed": seed,
                "error": f"exit status {ended.status}: {ended.last} (all of it: {log})",
            }
    result: dict[str, Any] = json.loads((folder / RESULT).read_text())
    return result


def finished_trials(out: Path) -> list[dict[str, Any]]:
    """Results of all finished trials of a run, of this command or an earlier one, by seed."""
    results = [json.loads(file.read_text()) for file in out.glob(f"trial_*/{RESULT}")]
    return sorted(results, key=lambda result: result["seed"])


def _print_line(line: str) -> None:
    print(line, end="", flush=True)


def _without_places(config: CfgNode) -> str:
    """The configuration as text, but for where things lie."""
    config = config.clone()
    config.MODEL.WEIGHTS = config.OUTPUT_DIR = ""
    return str(config.dump())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pirl-plugin detection",
        description="From a checkpoint to AP, AP50 and AP75, in one command.",
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--config", required=True, help="a name, such as voc07_pirl, or a path")
    parser.add_argument(
        "--weights", required=True, type=user_path, help="exported .pkl, or checkpoint"
    )
    parser.add_argument("--data", type=user_path, help="folder with VOC2007, VOC2012, coco")
    parser.add_argument(
        "--out", type=output_folder, help="folder (default: runs/detection/CONFIG_WEIGHTS)"
    )
    parser.add_argument("--num-gpus", type=int, help="of each trial (default: all)")
    parser.add_argument(
        "--trials", type=whole_number(1), default=1, help="of seeds SEED, SEED + 1, …"
    )
    parser.add_argument("--seed", type=whole_number(0), default=0, help="of the first trial")
    parser.add_argument("--trunk", metavar="KEYS", help="as in pirl-plugin export")
    parser.add_argument("--trust-pickle", action="store_true", help="as in pirl-plugin export")
    parser.add_argument("options", nargs="*", metavar="KEY VALUE", help="over the config")
    options = parser.parse_args(arguments)
    name = f"{Path(options.config).stem}_{options.weights.stem}"
    options.out = options.out or output_folder(f"runs/detection/{name}")
    return options
