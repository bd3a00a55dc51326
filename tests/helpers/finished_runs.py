"""Folders of finished VISSL runs, with configurations composed by VISSL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import yaml
from paper_rows import BENCHMARKS, PRETRAININGS
from paper_runs import compose
from published import LAYERS

from pirl_plugin.vissl.resume.record import read_composed
from tests.helpers.sweeps import finish


def composed(*overrides: str) -> dict[str, Any]:
    """Return a configuration as recorded by a run; compositions are shared between tests."""
    return read_composed(compose(*overrides))


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
    config = composed(f"config=benchmark/pirl/{dict(BENCHMARKS.values())[column]}", *overrides)
    config["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"] = str(checkpoint)
    write_run(folder, config)
    if column == "VOC07":
        for i, layer in enumerate(LAYERS):
            (folder / layer).mkdir(exist_ok=True)
            np.save(folder / layer / "test_ap.npy", np.full((20, 1), (best - 4 + i) / 100))
        return folder
    top1 = dict(zip(LAYERS, (10, 20, 30, best, best - 5), strict=True))
    finish(folder, top1, epochs=config["OPTIMIZER"]["num_epochs"])
    return folder
