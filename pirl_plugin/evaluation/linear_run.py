"""Results in the folder of a run of the host: whether it is finished, and what it measured."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from pirl_plugin.checkpoints.run_folder import CHECKPOINT_NAME
from pirl_plugin.files import read_json_lines

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def final_checkpoint(folder: Path) -> Path | None:
    """Return the last checkpoint of a run that has ended; None where there is none."""
    return _final(folder)[1]


def epochs_trained(folder: Path) -> int:
    """Return the epochs of a run that has ended; 0 of another."""
    return _final(folder)[0]


def _final(folder: Path) -> tuple[int, Path | None]:
    """Return epochs and last checkpoint of a run that has ended.

    The host writes it in place, so that a file may have been cut short; a whole one is an archive,
    whose directory is written last.
    """
    found: dict[int, Path] = {
        int(name["number"]) + 1: file
        for file in folder.glob("model_final_checkpoint_phase*.torch")
        if (name := CHECKPOINT_NAME.fullmatch(file.name)) and zipfile.is_zipfile(file)
    }
    return max(found.items(), default=(0, None))


def linear_top1(folder: Path) -> dict[str, float]:
    """Return top-1 of each layer after the last epoch of a linear benchmark, percent.

    Raises:
        ValueError: the run is not finished: it ended before its last epoch was tested.
    """
    return {layer: float(value) for layer, value in last_test(folder)["top_1"].items()}


def last_test(folder: Path) -> dict[str, dict[str, float]]:
    """Return accuracies after the last epoch: ``top_1`` and ``top_5`` of each layer, percent.

    Raises:
        ValueError: the run is not finished: it ended before its last epoch was tested.
    """
    epochs = epochs_trained(folder)
    for line in reversed(read_json_lines(folder / "metrics.json")):
        if "test_accuracy_list_meter" in line and line["train_phase_idx"] + 1 == epochs:
            meter: dict[str, dict[str, float]] = line["test_accuracy_list_meter"]
            return meter
    raise ValueError(
        f"{folder} is not finished: its metrics.json has no test accuracy of the last epoch; "
        f"start the run again"
    )


def svm_map(folder: Path, config: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean average precision of each layer's SVMs on VOC07, percent.

    Args:
        folder: of the run, which is no low-shot run.
        config: its configuration.

    Raises:
        ValueError: the run is not finished.
    """
    pools = config["MODEL"]["FEATURE_EVAL_SETTINGS"]["LINEAR_EVAL_FEAT_POOL_OPS_MAP"]
    found = {}
    for layer, _ in pools:
        file = folder / layer / "test_ap.npy"
        try:
            found[layer] = 100 * float(np.load(file).mean())
        except (OSError, ValueError, EOFError) as error:  # missing, or cut short
            raise ValueError(
                f"{folder} is not finished: {file} cannot be read ({error}); start the run again"
            ) from error
    return found
