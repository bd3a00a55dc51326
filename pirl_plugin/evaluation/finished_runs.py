"""Results in the folder of a run of the host: whether it is finished, and its accuracies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn.functional import batch_norm, linear

from pirl_plugin.checkpoints.read import CheckpointName, final_checkpoint, read_checkpoint
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import read_json_lines

TESTED = "PIRL_TESTED"
"""Key in ``stdout.json`` of the number of test images that an accuracy is of."""


def epochs_trained(folder: Path) -> int:
    """Return the number of epochs of a finished run; 0 for an unfinished one."""
    checkpoint = final_checkpoint(folder)
    name = CheckpointName.parse(checkpoint.name) if checkpoint is not None else None
    return name.number + 1 if name is not None else 0


def linear_accuracy(folder: Path, k: int = 1) -> dict[str, float]:
    """Return the top-k of each layer after the last epoch of a linear benchmark, percent.

    Args:
        folder: folder of the run.
        k: 1 or 5.

    Raises:
        ValueError: the run is not finished, or its last epoch was not tested.
    """
    epochs = epochs_trained(folder)
    for line in reversed(read_json_lines(folder / "metrics.json")):
        if "test_accuracy_list_meter" in line and line["train_phase_idx"] + 1 == epochs:
            accuracies = line["test_accuracy_list_meter"][f"top_{k}"]
            return {layer: float(value) for layer, value in accuracies.items()}
    raise Refused(
        f"{folder} is not finished: its metrics.json has no test accuracy of the last epoch. "
        f"Start the run again."
    )


def num_tested(folder: Path) -> int:
    """Return the number of test images of a finished benchmark that have a class and can be read.

    Raises:
        Refused: no images were tested.
    """
    for line in reversed(read_json_lines(folder / "stdout.json")):
        if TESTED in line:
            return int(line[TESTED])
    raise Refused(
        f"{folder / 'stdout.json'} is damaged: it has no number of test images. Choose another "
        f"folder, or delete this one."
    )


def classify(folder: Path, features: Tensor) -> Tensor:
    """Return the classes that a finished linear benchmark of one layer predicts.

    Args:
        folder: folder of the run, whose head is VISSL's ``eval_mlp``.
        features: floating ``(M, D)``, the pooled features of the layer.

    Returns:
        int64 ``(M,)``.
    """
    checkpoint = final_checkpoint(folder)
    assert checkpoint is not None  # the run is finished
    content: Any = read_checkpoint(checkpoint)
    head = content["classy_state_dict"]["base_model"]["model"]["heads"]
    names = ("running_mean", "running_var", "weight", "bias")
    normalized = batch_norm(features, *(head[f"0.channel_bn.{name}"] for name in names))
    scores = linear(normalized, head["0.clf.clf.0.weight"], head["0.clf.clf.0.bias"])
    return scores.argmax(dim=1)
