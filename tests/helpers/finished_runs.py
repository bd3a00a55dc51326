"""Folders of finished VISSL runs, with configurations composed by VISSL."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from paper_rows import BENCHMARKS, PRETRAININGS
from paper_runs import compose
from published import LAYERS

from pirl_plugin.checkpoints.read import SECTION
from pirl_plugin.vissl.resume.record import (
    RUN_RECORD,
    hash_weights,
    read_origin,
)
from tests.helpers.sweeps import finish


def composed(*overrides: str) -> dict[str, Any]:
    """Return a configuration as recorded by a run; compositions are shared between tests."""
    return copy.deepcopy(compose(*overrides))


def write_checkpoint(file: Path, config: dict[str, Any], epochs: int, **section: Any) -> None:
    """Write a run's checkpoint with its record but without weights."""
    section = {"config": json.dumps(config), **section}
    content = {"classy_state_dict": {"hooks": {SECTION: section}}, "train_phase_idx": epochs - 1}
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, file)


def loaded_weights(config: dict[str, Any]) -> dict[str, Any]:
    """Return what a run records of its initial weights; empty if a file is missing."""
    initial = [config["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"]]
    ensemble = (config["MODEL"]["TRUNK"].get("PIRL_ENSEMBLE") or {}).get("PARAMS_FILES") or []
    files = [Path(file) for file in [*initial, *ensemble] if file]
    if not all(file.is_file() for file in files):
        return {}
    origins = {str(file): read_origin(file) for file in files}
    return {"weights": hash_weights(config), "origins": origins}


def write_run(folder: Path, config: dict[str, Any]) -> Path:
    """Write ``train_config.yaml`` to a folder and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train_config.yaml").write_text(yaml.dump(config, Dumper=yaml.CSafeDumper))
    return folder


def pretrained(folder: Path, *overrides: str, row: str = "PIRL") -> Path:
    """Write the checkpoint from a row's pre-training with other overrides."""
    config = composed(*PRETRAININGS[row], *overrides)
    write_checkpoint(folder / "checkpoint.torch", config, config["OPTIMIZER"]["num_epochs"])
    return folder / "checkpoint.torch"


def measured(
    folder: Path,
    checkpoint: Path | str,
    *overrides: str,
    column: str = "ImageNet",
    best: float = 40,
) -> Path:
    """Write a finished benchmark whose best layer is res4 out of five, or the only one."""
    config = composed(f"config=benchmark/pirl/{dict(BENCHMARKS.values())[column]}", *overrides)
    config["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"] = str(checkpoint)
    write_run(folder, config)
    if column == "VOC07":
        for i, layer in enumerate(LAYERS):
            (folder / layer).mkdir(exist_ok=True)
            np.save(folder / layer / "test_ap.npy", np.full((20, 1), (best - 4 + i) / 100))
        return record_svm(folder, config)
    top1 = dict(zip(LAYERS, (10, 20, 30, best, best - 5), strict=True))
    epochs = config["OPTIMIZER"]["num_epochs"]
    finish(folder, top1, epochs=epochs)
    return record(folder, config)


def record_svm(folder: Path, config: dict[str, Any]) -> Path:
    """Write the record of a run without a checkpoint, and return its folder."""
    section = {"config": json.dumps(config), **loaded_weights(config)}
    (folder / RUN_RECORD).write_text(json.dumps(section))
    return folder


def record(folder: Path, config: dict[str, Any], **section: Any) -> Path:
    """Write a benchmark's configuration and last checkpoint, and return its folder."""
    write_run(folder, config)
    epochs = config["OPTIMIZER"]["num_epochs"]
    file = folder / f"model_final_checkpoint_phase{epochs - 1}.torch"
    write_checkpoint(file, config, epochs, **loaded_weights(config), **section)
    return folder
