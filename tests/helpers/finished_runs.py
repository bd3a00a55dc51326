"""Folders of finished VISSL runs, with configurations composed by VISSL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from paper_rows import PRETRAININGS
from paper_runs import compose

LAYERS = ("conv1", "res2", "res3", "res4", "res5")
BENCHMARKS = {  # column → config name
    "ImageNet": "linear_imagenet1k",
    "Places205": "linear_places205",
    "iNaturalist-2018": "linear_inaturalist18",
    "1 %": "semi_supervised_imagenet1k_1percent",
    "10 %": "semi_supervised_imagenet1k_10percent",
    "VOC07": "svm_voc07",
}


def composed(*overrides: str) -> dict[str, Any]:
    """A configuration as plain mappings, lists and values, as in ``train_config.yaml``."""
    return _plain(compose(*overrides))  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, (int, float, str, type(None))) else str(value)


def write_run(folder: Path, config: dict[str, Any]) -> Path:
    """Write ``train_config.yaml`` to a folder and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train_config.yaml").write_text(yaml.dump(config, Dumper=yaml.CSafeDumper))
    return folder


def pretrained(folder: Path, *overrides: str, row: str = "PIRL") -> Path:
    """The (missing) checkpoint from a row's pre-training with other overrides."""
    return write_run(folder, composed(*PRETRAININGS[row], *overrides)) / "checkpoint.torch"


def measured(
    folder: Path,
    checkpoint: Path | str,
    *overrides: str,
    column: str = "ImageNet",
    best: float = 40,
) -> Path:
    """Write a finished benchmark whose best layer is res4 out of five, or the only one."""
    config = composed(f"config=benchmark/pirl/{BENCHMARKS[column]}", *overrides)
    config["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"] = str(checkpoint)
    write_run(folder, config)
    if column == "VOC07":
        for i, layer in enumerate(LAYERS):
            (folder / layer).mkdir(exist_ok=True)
            np.save(folder / layer / "test_ap.npy", np.full((20, 1), (best - 4 + i) / 100))
        return folder
    top1 = dict(zip(LAYERS, (10, 20, 30, best, best - 5), strict=True))
    write_metrics(folder, top1, config["OPTIMIZER"]["num_epochs"])
    return folder


def write_metrics(folder: Path, top1: dict[str, float], epochs: int = 3) -> None:
    """Write VISSL's linear metrics: last-epoch top-1 as given, and top-5 5 points higher."""
    folder.mkdir(parents=True, exist_ok=True)
    meter = {"top_1": top1, "top_5": {layer: value + 5 for layer, value in top1.items()}}
    early, last = {"top_1": {"conv1": 99.0}, "top_5": {}}, epochs - 1
    lines = [
        {"test_accuracy_list_meter": early, "train_phase_idx": last - 1},
        {"train_accuracy_list_meter": {}, "train_phase_idx": last},
        {"test_accuracy_list_meter": meter, "train_phase_idx": last},
    ]
    (folder / "metrics.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / f"model_final_checkpoint_phase{epochs - 1}.torch").touch()
