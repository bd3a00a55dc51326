"""What a folder of the host's says: whether its run is finished, and what a benchmark measured."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from pirl_plugin.checkpoints.run_folder import CHECKPOINT_NAME
from pirl_plugin.checkpoints.training_run import RUN_CONFIG, read_config
from pirl_plugin.files import read_json_lines

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def final_checkpoint(folder: Path) -> Path | None:
    """The last checkpoint of a run that has ended; None where there is none.

    The host writes it in place, so that a file may have been cut short; a whole one is an archive,
    whose directory is written last.
    """
    found = {
        int(name["number"]): file
        for file in folder.glob("model_final_checkpoint_phase*.torch")
        if (name := CHECKPOINT_NAME.fullmatch(file.name)) and zipfile.is_zipfile(file)
    }
    return found[max(found)] if found else None


def epochs_trained(folder: Path) -> int:
    """Epochs of a run that has ended, by the name of its last checkpoint; 0 where there is none."""
    final = final_checkpoint(folder)
    found = CHECKPOINT_NAME.fullmatch(final.name) if final else None
    return int(found["number"]) + 1 if found else 0


def linear_top1(folder: Path) -> dict[str, float]:
    """Top-1 of each layer after the last epoch of a linear benchmark, percent.

    Raises:
        ValueError: the run is not finished: it ended before its last epoch was tested.
    """
    return {layer: float(value) for layer, value in last_test(folder)["top_1"].items()}


def last_test(folder: Path) -> dict[str, dict[str, float]]:
    """Accuracies after the last epoch: ``top_1`` and ``top_5`` of each layer, percent.

    Raises:
        ValueError: the run is not finished: it ended before its last epoch was tested.
    """
    final = final_checkpoint(folder)
    found = CHECKPOINT_NAME.fullmatch(final.name) if final else None
    for line in reversed(read_json_lines(folder / "metrics.json")):
        if "test_accuracy_list_meter" in line:
            if found is None or line["train_phase_idx"] != int(found["number"]):
                break
            meter: dict[str, dict[str, float]] = line["test_accuracy_list_meter"]
            return meter
    raise ValueError(
        f"{folder} is not finished: its metrics.json has no test accuracy of the last epoch; "
        f"start the run again"
    )


def svm_map(folder: Path, config: Mapping[str, Any] | None = None) -> dict[str, float]:
    """Mean average precision of each layer's SVMs on VOC07, percent; of no low-shot run.

    Args:
        folder: of the run.
        config: its configuration, where it has been read already.

    Raises:
        ValueError: the run is not finished.
    """
    if config is None:
        file = folder / RUN_CONFIG
        config = read_config(file) if file.is_file() else None
    if config is None:
        raise ValueError(f"{folder} is not finished: there is no {RUN_CONFIG}")
    pools = config["MODEL"]["FEATURE_EVAL_SETTINGS"]["LINEAR_EVAL_FEAT_POOL_OPS_MAP"]
    files = {layer: folder / layer / "test_ap.npy" for layer, _ in pools}
    missing = [str(file) for file in files.values() if not file.is_file()]
    if missing:
        raise ValueError(f"{folder} is not finished, or a low-shot run: there is no {missing[0]}")
    return {layer: 100 * _mean_precision(folder, file) for layer, file in files.items()}


def _mean_precision(folder: Path, file: Path) -> float:
    try:
        return float(np.load(file).mean())
    except (ValueError, EOFError, TypeError) as error:  # of 0 bytes, cut short, of objects
        raise ValueError(
            f"{folder} is not finished: {file} is damaged ({error}); start the run again"
        ) from error
