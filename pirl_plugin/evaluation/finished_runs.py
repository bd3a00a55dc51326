"""Results in a VISSL run's folder: whether it is finished, and the accuracies."""

from __future__ import annotations

from pathlib import Path

from pirl_plugin.checkpoints.read import CheckpointName, final_checkpoint
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import read_json, read_json_lines

TESTED = "tested.json"
"""File in a run's folder with the number of test images behind an accuracy."""


def final_accuracy(folder: Path, k: int = 1) -> dict[str, float]:
    """Return each layer's top-k accuracy after a benchmark's last epoch, in percent.

    Args:
        folder: the run's folder.
        k: 1 or 5.

    Raises:
        ValueError: the run is not finished, or its last epoch was not tested.
    """
    checkpoint = final_checkpoint(folder)
    name = None if checkpoint is None else CheckpointName.parse(checkpoint.name)
    last_epoch = None if name is None else name.number
    for line in reversed(read_json_lines(folder / "metrics.json")):
        if "test_accuracy_list_meter" in line and line["train_phase_idx"] == last_epoch:
            accuracies = line["test_accuracy_list_meter"][f"top_{k}"]
            return {layer: float(value) for layer, value in accuracies.items()}
    raise Refused(
        f"{folder}: metrics.json has no test accuracy for the last epoch. If the run was stopped, "
        f"start it again; if config.TEST_MODEL is false, choose another folder."
    )


def num_tested(folder: Path) -> int:
    """Return a finished benchmark's number of labeled, readable test images.

    Raises:
        Refused: the file is damaged.
    """
    return int(read_json(folder / TESTED)["images"])
