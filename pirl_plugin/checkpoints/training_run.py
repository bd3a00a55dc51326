"""``train_config.yaml``, written beside checkpoints: how they were trained."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pirl_plugin.files import atomic_write
from pirl_plugin.settings import num_micro_batches

if TYPE_CHECKING:
    from vissl.config import AttrDict

RUN_CONFIG = "train_config.yaml"
_SIZES = ("image_size", "size", "crop_size_image")  # of our views, torchvision's, VISSL's PIRL
_BOTH = ("start_value", "end_value")
_RESTARTS = ("restart_interval_length", "wave_type", "lr_multiplier", "is_adaptive")
SCHEDULES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "cosine": (_BOTH, ()),
    "cosine_warm_restart": (_BOTH, _RESTARTS),
    "linear": (_BOTH, ()),
    "inverse_sqrt": (("start_value",), ("warmup_interval_length",)),
    "constant": (("value",), ()),
    "step": (("values",), ()),
    "multistep": (("values",), ("milestones",)),
}
"""Schedule of the learning rate → the keys of its rates, and the others that it reads."""


@dataclass(frozen=True)
class TrainingRun:
    """A pre-training run, from its ``train_config.yaml``.

    Attributes:
        settings: what a reader wants to know, name → value, in order.
        image_size: side of the image view, pixels; None where the run does not say.
        mean: of the channels, by which images were normalised; None where the run does not say.
        std: their standard deviation, likewise.
        labelled: whether it was trained with labels of people.
        initial_weights: the file that it started from, whose own training is not known; empty for
            random initialisation.
        is_pirl: whether its loss is this package's.
    """

    settings: dict[str, str]
    image_size: int | None
    mean: list[float] | None
    std: list[float] | None
    labelled: bool
    initial_weights: str
    is_pirl: bool


def write_run_config(config: AttrDict, folder: Path) -> None:
    """Write the configuration of a run into its folder, as the host does, with absolute paths.

    Those of images, labels and initial weights: tables and model cards are made elsewhere.

    Args:
        config: the host's ``AttrDict``.
        folder: of the run's checkpoints.
    """
    content = config.to_dict()
    sharding = content["MODEL"].get("FSDP_CONFIG") or {}
    if "compute_dtype" in sharding:  # the host has made a torch.dtype of its name
        sharding["compute_dtype"] = str(sharding["compute_dtype"]).removeprefix("torch.")
    data = content.get("DATA") or {}
    for section, key in itertools.product(("TRAIN", "TEST"), ("DATA_PATHS", "LABEL_PATHS")):
        if paths := data.get(section, {}).get(key):
            data[section][key] = [_absolute(str(path)) for path in paths]
    weights = content["MODEL"].get("WEIGHTS_INIT") or {}
    if file := weights.get("PARAMS_FILE"):
        weights["PARAMS_FILE"] = _absolute(file)
    ensemble = (content["MODEL"].get("TRUNK") or {}).get("PIRL_ENSEMBLE") or {}
    if files := ensemble.get("PARAMS_FILES"):
        ensemble["PARAMS_FILES"] = [_absolute(file) for file in files]
    text = yaml.dump(content)
    with atomic_write(folder / RUN_CONFIG, needed=len(text)) as file:
        file.write(text.encode())


def _absolute(path: str) -> str:
    return path if not path or "://" in path else os.path.abspath(path)


def run_config(checkpoint: Path) -> dict[str, Any] | None:
    """The configuration of the run that wrote a checkpoint, or None where it is not beside it.

    Raises:
        ValueError: the file is no YAML of a mapping.
    """
    file = run_config_file(checkpoint)
    return None if file is None else read_config(file)


def run_config_file(checkpoint: Path) -> Path | None:
    """The configuration beside a checkpoint, or beside the file that it links to."""
    files = (folder / RUN_CONFIG for folder in (checkpoint.parent, checkpoint.resolve().parent))
    return next((file for file in files if file.is_file()), None)


def read_config(file: Path) -> dict[str, Any]:
    """The configuration in a file that the host has written.

    Raises:
        ValueError: the file is no YAML of a mapping.
    """
    try:
        config = yaml.safe_load(file.read_text())
    except yaml.YAMLError as error:
        raise ValueError(_not_a_run(file, " ".join(str(error).split()))) from error
    if not isinstance(config, dict):
        raise ValueError(_not_a_run(file, f"it holds a {type(config).__name__}"))
    return config


def _not_a_run(file: Path, why: object) -> str:
    return f"{file} is no configuration of a VISSL run ({why}): move it, or repair it"


def read_training_run(checkpoint: Path) -> TrainingRun | None:
    """The run whose folder a checkpoint lies in; None where no ``train_config.yaml`` is there.

    Raises:
        ValueError: the file is not YAML, or no configuration of the host.
    """
    config = run_config(checkpoint)
    if config is None:
        return None
    try:
        data, loss = config["DATA"], config["LOSS"]
        train = data["TRAIN"]
        transform = (train["TRANSFORMS"] or [{}])[0]
        settings = {
            "Task": str(transform.get("name", "not recorded")),
            "Data": ", ".join(map(str, train["DATASET_NAMES"])),
            **_loss(loss),
            **_optimisation(config),
        }
        started_from = (config["MODEL"].get("WEIGHTS_INIT") or {}).get("PARAMS_FILE") or ""
        if started_from:
            settings["Initial weights"] = Path(started_from).name
        return TrainingRun(
            settings,
            image_size_of(config),
            *channel_statistics(config),
            labelled=train["LABEL_TYPE"] == "standard",
            initial_weights=started_from,
            is_pirl=loss["name"] == "pirl_loss",
        )
    except (AttributeError, KeyError, TypeError, IndexError) as error:
        raise ValueError(_not_a_run(checkpoint.parent / RUN_CONFIG, error)) from error


def channel_statistics(
    config: Mapping[str, Any] | None,
) -> tuple[list[float] | None, list[float] | None]:
    """Mean and deviation that a run's images were normalised with; None where it gives none."""
    section = (config or {}).get("HOOKS", {}).get("PIRL_INPUT") or {}
    data = (config or {}).get("DATA", {})
    return section.get("mean") or data.get("MEAN"), section.get("std") or data.get("STD")


def image_size_of(config: Mapping[str, Any] | None) -> int | None:
    """Side of the images that a run was trained on, pixels; None where its transforms give none."""
    transforms = (config["DATA"]["TRAIN"]["TRANSFORMS"] or []) if config else []
    # The last one: a crop is of what an earlier transform has resized.
    sizes = (transform.get(key) for transform in reversed(transforms) for key in _SIZES)
    return next((size for size in sizes if isinstance(size, int)), None)


def _loss(loss: dict[str, Any]) -> dict[str, str]:
    ours = loss.get("pirl_loss") or {}
    if loss["name"] != "pirl_loss" or not ours:
        return {"Loss": str(loss["name"])}
    return {
        "Loss": f"pirl_loss, estimator {ours['estimator']}",
        "λ (weight of the invariance term)": f"{ours['lambda_invariance']:g}",
        "τ (temperature)": f"{ours['temperature']:g}",
        "N (negatives)": f"{ours['num_negatives']:,}",
        "Momentum of the memory bank": f"{ours['bank']['momentum']:g}",
    }


def _optimisation(config: dict[str, Any]) -> dict[str, str]:
    machines, optimizer = config["DISTRIBUTED"], config["OPTIMIZER"]
    replica = config["DATA"]["TRAIN"]["BATCHSIZE_PER_REPLICA"]
    processes = machines["NUM_NODES"] * machines["NUM_PROC_PER_NODE"]
    rate = optimizer["param_schedulers"]["lr"]
    return {
        "Epochs": str(optimizer["num_epochs"]),
        "Batch": f"{replica * processes:,} images ({processes} × {replica}{_parts(config)})",
        "Learning rate": f"{learning_rates(rate)}, {rate['name']}",
        "Weight decay": f"{optimizer['weight_decay']:g}",
        "Seed": str(config["SEED_VALUE"]),
    }


def learning_rates(schedule: Mapping[str, Any]) -> str:
    """``0.12 → 0.00012``: the rates that a schedule goes through, of the keys that it reads.

    Args:
        schedule: ``OPTIMIZER.param_schedulers.lr`` of the host's configuration.
    """
    return " → ".join(f"{rate:g}" for rate, _ in itertools.groupby(_rates(schedule)))


def _rates(schedule: Mapping[str, Any]) -> list[float]:
    if schedule["name"] == "composite":
        return [rate for part in schedule["schedulers"] for rate in _rates(part)]
    keys, _ = SCHEDULES.get(schedule["name"], (("base_lr",), ()))
    values = [schedule[key] for key in keys if key in schedule]
    return values[0] if keys == ("values",) else values


def _parts(config: dict[str, Any]) -> str:
    count = num_micro_batches(config)
    return f" in {count} micro-batches" if count > 1 else ""
