"""Which row of the paper's tables a pre-training belongs to, and in what it differs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pirl_plugin.checkpoints.host_checkpoint import CHECKPOINT_NAME
from pirl_plugin.checkpoints.training_run import read_config, run_config_file
from pirl_plugin.evaluation.tables.compare_settings import (
    Differences,
    data_set,
    differences,
    settings_key,
    settings_of,
)
from pirl_plugin.evaluation.tables.paper_settings.common import (
    IMAGENET,
    INATURALIST,
    PLACES,
    VOC07,
    YFCC,
)
from pirl_plugin.evaluation.tables.paper_settings.free import FREE, PRETRAINING_FREE
from pirl_plugin.evaluation.tables.paper_settings.pretraining import PRETRAINING
from pirl_plugin.images.sources.paths import class_folders
from pirl_plugin.utils.json_lines import read_json_lines

IMAGES = {  # data set → training images, and the part of them by which a count may differ
    IMAGENET: (1_281_167, 0.001),
    PLACES: (2_448_873, 0.001),
    INATURALIST: (437_513, 0.001),
    YFCC: (1_000_000, 0.001),
    "1 % of ImageNet": (12_811, 0.05),
    "10 % of ImageNet": (128_116, 0.05),
    VOC07: (5_011, 0),
}
CLASSES = {IMAGENET: 1000, PLACES: 205}  # of the data sets that are folders of classes
UNKNOWN = "unknown"
_EARLIER = re.compile(r"train_config_(\d+)\.yaml")
_RESUMES = "Resume from file: "
_SAMPLES = re.compile(r"Total (\d+) samples in one epoch")


@dataclass(frozen=True)
class Origin:
    """Where the weights of a benchmark come from.

    Attributes:
        row: the row that their pre-training is of, or the nearest; None where nothing is known.
        differs: in what the pre-training is not that row's.
        identity: the same text for pre-trainings whose benchmarks may be averaged.
    """

    row: str | None
    differs: Differences = field(default_factory=dict)
    identity: str = ""


def origin_of(checkpoint: str) -> Origin:
    """The row of the run that wrote a checkpoint, by the ``train_config.yaml`` beside it.

    Args:
        checkpoint: its path; ``""`` for random weights, :data:`UNKNOWN` where nothing says.
    """
    seen: set[Path] = set()
    while checkpoint:
        file = None if checkpoint == UNKNOWN else run_config_file(Path(checkpoint))
        if file is None or file in seen:
            return Origin(None, {"pre-training": (UNKNOWN, None)}, checkpoint)
        config = read_config(file)
        if not config["MODEL"]["FEATURE_EVAL_SETTINGS"]["EVAL_MODE_ON"]:
            return _origin_in(file, config, checkpoint)
        seen.add(file)  # of a benchmark, which says what weights it began with
        checkpoint = config["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"]
    return Origin("Random", identity="Random")


def _origin_in(file: Path, config: dict[str, Any], checkpoint: str) -> Origin:
    """The row of a pre-training, by its configuration."""
    differ = {row: pretraining_differences(config, file.parent, row) for row in PRETRAINING}
    nearest = min(differ, key=lambda row: _distance(differ[row]))
    wanted = PRETRAINING[nearest]["OPTIMIZER.num_epochs"]
    done = epochs_done(Path(checkpoint), wanted)
    if done != wanted:
        differ[nearest]["pre-training epochs done"] = (done, wanted)
    configs = [config, *configs_before(file.parent)]
    kept = [settings_key(settings_of(one), [*FREE, *PRETRAINING_FREE]) for one in configs]
    data = data_set(config["DATA"]["TRAIN"]["DATASET_NAMES"])
    images = " and ".join(map(str, dict.fromkeys(_num_images(config, file.parent, data))))
    where = "" if data in IMAGES else data_paths(config["DATA"]["TRAIN"])
    name = CHECKPOINT_NAME.fullmatch(Path(checkpoint).name)
    step = f", step {name['number']}" if name and name["kind"] == "iteration" else ""
    identity = f"{''.join(kept)} {done} epochs{step}, {images} images {where}"
    return Origin(nearest, differ[nearest], identity)


def _distance(differ: Differences) -> tuple[int, bool]:
    """Settings that differ, then whether the data set does; what the images are does not count."""
    about_images = ("training images", "classes in", "data set")
    others = [
        key for key in differ if not key.removeprefix("pre-training ").startswith(about_images)
    ]
    return len(others), "pre-training data set" in differ


def epochs_done(checkpoint: Path, wanted: int) -> int:
    """Whole epochs after which a checkpoint was written, as far as its name and the log tell."""
    name = CHECKPOINT_NAME.fullmatch(checkpoint.name)
    if name and name["kind"] == "phase":
        return int(name["number"]) + 1
    lines = read_json_lines(checkpoint.parent / "stdout.json")
    if name:  # saved in the middle of an epoch
        before = [line for line in lines if line["iter"] <= int(name["number"])]
        return int(before[-1]["ep"]) if before else 0
    return int(lines[-1]["ep"]) + 1 if lines else wanted


def pretraining_differences(config: dict[str, Any], folder: Path, row: str) -> Differences:
    """In what a pre-training is not that of a row, with ``pre-training`` before each key.

    Args:
        config: as in its ``train_config.yaml``.
        folder: of the run, with the host's ``log.txt``.
        row: of :data:`PRETRAINING`.
    """
    fixed, free = PRETRAINING[row], [*FREE, *PRETRAINING_FREE]
    differ = differences(settings_of(config), fixed, free)
    differ |= earlier_differences(folder, fixed, free)
    differ |= image_differences(config, folder, fixed["data set"], splits=("TRAIN",))
    return {f"pre-training {key}": values for key, values in differ.items()}


def earlier_differences(folder: Path, fixed: dict[str, object], free: list[str]) -> Differences:
    """In what a run was not a row's before it went on with other settings."""
    return {
        f"{key} at first": values
        for before in configs_before(folder)
        for key, values in differences(settings_of(before), fixed, free).items()
    }


def configs_before(folder: Path) -> list[dict[str, Any]]:
    """Those of :func:`earlier_configs`."""
    return [read_config(file) for file in earlier_configs(folder).values()]


def earlier_configs(folder: Path) -> dict[int, Path]:
    """Configurations with which a run was trained before it went on with others, by number."""
    found = ((_EARLIER.fullmatch(file.name), file) for file in folder.glob("train_config_*.yaml"))
    return dict(sorted((int(match[1]), file) for match, file in found if match))


def image_differences(
    config: dict[str, Any], folder: Path, data: str, splits: tuple[str, ...]
) -> Differences:
    """Whether the images are those of a data set, as far as run and files can tell.

    A configuration says "ImageNet" of whatever folder it is given. The host's log has the number of
    images, and the folder or list, where it is on this machine, the number of classes or rows.

    Args:
        config: as in ``train_config.yaml``.
        folder: of the run, with the host's ``log.txt``.
        data: the paper's name of the data set.
        splits: of the configuration, whose folders are looked at.
    """
    differ: Differences = {}
    images, tolerance = IMAGES.get(data, (0, 0))
    for seen in _num_images(config, folder, data):
        if images and abs(seen - images) > tolerance * images:
            differ["training images"] = (seen, images)
    for split in splits:
        classes = _class_folders(config["DATA"][split])
        if data in CLASSES and classes and classes != CLASSES[data]:
            differ[f"classes in DATA.{split}.DATA_PATHS"] = (classes, CLASSES[data])
    return differ


def _num_images(config: dict[str, Any], folder: Path, data: str) -> list[int]:
    """Training images of a run, by its log or the list of them; none where neither is here.

    A run that went on with other images has several.
    """
    listed = _rows_listed(config["DATA"]["TRAIN"], data)
    return _images_logged(folder) or ([] if listed is None else [listed])


def _images_logged(folder: Path) -> list[int]:
    """By the host's log, to which a run that goes on appends, and one that starts over too."""
    log, found, goes_on = folder / "log.txt", list[int](), False
    if not log.is_file():
        return found
    with log.open(errors="replace") as lines:
        for line in lines:
            goes_on = goes_on or _RESUMES in line
            if samples := _SAMPLES.search(line):
                found = [*(found if goes_on else []), int(samples[1])]
                goes_on = False
    return found


def _rows_listed(split: dict[str, Any], data: str) -> int | None:
    """Rows of the list of images, or of VOC07's, where it is here."""
    for path in map(Path, data_paths(split)):
        if path.suffix == ".npy" and path.is_file():
            return len(np.load(path, mmap_mode="r"))
        if path.suffix == ".txt" and path.is_file():
            return sum(1 for line in path.read_text().splitlines() if line.strip())
        lists = sorted(path.glob("ImageSets/Main/*_trainval.txt")) if data == VOC07 else []
        if lists:
            return sum(1 for line in lists[0].read_text().splitlines() if line.strip())
    return None


def data_paths(split: dict[str, Any]) -> list[str]:
    """Folders or lists of a split's images, as in ``train_config.yaml``."""
    return [str(path) for path in split.get("DATA_PATHS") or []]


def _class_folders(split: dict[str, Any]) -> int:
    """Subfolders of the folder of images, where it is here; 0 of anything else."""
    for path in map(Path, data_paths(split)):
        if path.is_dir() and str((split.get("DATA_SOURCES") or [""])[0]).endswith("disk_folder"):
            return len(class_folders(str(path)))
    return 0
