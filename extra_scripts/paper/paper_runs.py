"""Find which row in the paper's tables a finished run fills, or how it differs.

A run fills a row if its configuration and its checkpoint's pre-training equal the row's configs,
except for the lists in ``paper_rows.py``, and if both have the row's epochs, batch and number of
images.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from paper_rows import (
    BENCHMARKS,
    DETECTION_IMAGES,
    IMAGES,
    MOCO_MD5,
    PAPER,
    PAPER_BENCHMARK,
    PAPER_DETECTION,
    PAPER_SVM,
    PRETRAININGS,
    STORAGE,
    SUPERVISED,
    TOP_5,
)
from paper_tables import Run
from published import DETECTION_ROWS, LAYERS
from run_config import run_config

from pirl_plugin.checkpoints.read import (
    RUN_CONFIG,
    CheckpointName,
    read_checkpoint,
    section_of,
)
from pirl_plugin.evaluation.finished_runs import final_accuracy, final_checkpoint
from pirl_plugin.system.comparison import Differences
from pirl_plugin.system.failures import MissingFile, Refused
from pirl_plugin.vissl.resume.record import (
    GLOBAL_BATCH,
    RUN_RECORD,
    global_batch,
    record_config,
    run_differences,
)
from pirl_plugin.vissl.sections import RECORD


@dataclass
class Origin:
    """The row nearest to a run or a pre-training, what differs, and what is unknown."""

    row: str
    differs: Differences = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)


@dataclass
class Record:
    """What is known about the run that wrote a checkpoint.

    Attributes:
        config: the complete configuration.
        epochs: number of finished epochs; None if unknown.
        images: split → number of images, if known.
        batches: the run's global batches, in order.
        classes: split → digest of the labels, if known.
        weights: key of an initial weights file → SHA-256; empty if unknown.
        origins: file with initial weights → record of its run, as when the weights were loaded.
    """

    config: dict[str, Any]
    epochs: int | None
    images: dict[str, int]
    batches: list[int]
    classes: dict[str, str]
    weights: dict[str, str]
    origins: dict[str, dict[str, Any]]


def record_of(config: dict[str, Any], epochs: int | None, section: Mapping[str, Any]) -> Record:
    """Return a record from a configuration and the other values in a checkpoint."""
    identities = section.get("images") or {}
    return Record(
        config,
        epochs,
        images={split: int(each["count"]) for split, each in identities.items()},
        batches=section.get("global_batches") or [global_batch(config)],
        classes={split: each.get("classes", "") for split, each in identities.items()},
        weights=section.get("weights") or {},
        origins=section.get("origins") or {},
    )


def read_record(checkpoint: Path) -> Record | None:
    """Read a run's record from its checkpoint, or infer it from name and folder.

    A removed checkpoint leaves ``train_config.yaml``, and a link leaves its target's name.

    Returns:
        The record; None without a configuration.
    """
    content: Mapping[str, Any] = {}
    if checkpoint.is_file():
        try:
            content = read_checkpoint(checkpoint, mapped=True)
        except ValueError:  # not a VISSL checkpoint, such as a torchvision file
            content = {}
    name = CheckpointName.parse(checkpoint.resolve().name)
    config = run_config(checkpoint, content)
    if config is None:
        return None
    epochs = name.number + 1 if name is not None and name.kind == "phase" else None
    if "train_phase_idx" in content:
        epochs = int(content["train_phase_idx"]) + 1
    return record_of(config, epochs, section_of(content))


def read_run(path: Path) -> Run:
    """Read the folder of a VISSL benchmark or a detection run.

    Args:
        path: folder with ``train_config.yaml`` or ``results.json``.

    Raises:
        FileNotFoundError: it is not a run's folder.
        ValueError: the run is not finished, or is not one of the paper's benchmarks.
    """
    if (path / "results.json").is_file():
        return _read_detection(path)
    record = read_record(final_checkpoint(path) or path / "checkpoint.torch")
    if record is None:
        raise MissingFile(f"this folder has no {RUN_CONFIG}, so it is not a run's")
    config = record.config

    # Layer accuracies. SVMs leave features, but no record of their images.
    is_svm = config["MODEL"]["FEATURE_EVAL_SETTINGS"]["EXTRACT_TRUNK_FEATURES_ONLY"]
    if is_svm:
        file = path / RUN_RECORD
        if file.is_file():
            section = json.loads(file.read_text("utf-8"))
            config = json.loads(section["config"])
            record = record_of(config, None, section)
        accuracies = svm_map(path, config)
        record.images = _images_of_features(path, next(iter(accuracies)))
    column, name = _benchmark_of(record)
    if not is_svm:
        accuracies = final_accuracy(path)
    best = max(accuracies, key=lambda layer: accuracies[layer])
    figures = {column: accuracies[best]}
    if column in TOP_5:
        figures = {column: final_accuracy(path, 5)[best]}
    elif not is_svm:  # Table 7 has all layers
        layers = [layer for layer in LAYERS if layer in accuracies]
        figures |= {f"{column} {layer}": accuracies[layer] for layer in layers}

    # Find the row: both pre-training and benchmark must match the paper's.
    origin = _origin_of_benchmark(record)
    overrides = [f"config=benchmark/pirl/{name}"]
    if origin.row == "PIRL-ens":
        overrides = ["config=benchmark/pirl/ensemble_imagenet1k"]
    elif origin.row == "PIRL-c2x":
        overrides.append("+config/pirl/linear=resnet50_c2x")
    expected = compose(*overrides)
    origin.differs |= _other_images(record, expected)
    if not is_svm:
        on_one_gpu = compose(*overrides, "+config/pirl/machines=1gpu")
        origin.differs |= _other_length(record)
        origin.differs |= _other_batch(record, global_batch(expected), global_batch(on_one_gpu))
    free = PAPER_SVM if is_svm else PAPER_BENCHMARK
    origin.differs |= run_differences(record_config(config), record_config(expected), free)
    unknown = [split for split in ("TRAIN", "TEST") if split not in record.images]
    origin.unknown += [f"its number of {split} images" for split in unknown]
    layer = best if best in LAYERS else None
    return Run(
        path, origin.row, figures, layer, origin.differs, origin.unknown, classes=record.classes
    )


def svm_map(folder: Path, config: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean average precision on VOC07 for each layer's SVMs, in percent.

    Args:
        folder: the run's folder.
        config: the run's configuration.

    Raises:
        OSError: the run is not finished.
    """
    pools = config["MODEL"]["FEATURE_EVAL_SETTINGS"]["LINEAR_EVAL_FEAT_POOL_OPS_MAP"]
    return {
        layer: 100 * float(np.load(folder / layer / "test_ap.npy").mean()) for layer, _ in pools
    }


def _benchmark_of(record: Record) -> tuple[str, str]:
    """Return a run's column and config, by its data set's name or else its number of images."""
    data = _data_set(record.config, "TRAIN")
    if data in STORAGE:
        for name in BENCHMARKS:
            if IMAGES[name]["TRAIN"] == record.images.get("TRAIN"):
                data = name
    if data not in BENCHMARKS or not record.config["DATA"]["TRAIN"].get("LABEL_SOURCES"):
        raise Refused(f"not a benchmark on one of {', '.join(BENCHMARKS)}")
    return BENCHMARKS[data]


def _images_of_features(folder: Path, layer: str) -> dict[str, int]:
    """Return split → number of images, from the features that VISSL leaves for SVMs."""
    images = {}
    for split in ("TRAIN", "TEST"):
        files = folder.glob(f"rank*_chunk*_{split.lower()}_{layer}_inds.npy")
        rows = [np.load(file) for file in files]
        if rows:  # ranks repeat some images, so that all ranks have as many
            images[split] = len(np.unique(np.concatenate(rows)))
    return images


def _other_images(record: Record, expected: Mapping[str, Any]) -> Differences:
    """Return how the images differ from the paper's, by name or number."""
    differs: Differences = {}
    for split in ("TRAIN", "TEST"):
        data = _data_set(record.config, split)
        expected_data = _data_set(expected, split)
        number = record.images.get(split)
        expected_number = IMAGES.get(expected_data, {}).get(split)
        if data != expected_data and (data not in STORAGE or number is None):
            differs[f"DATA.{split}.DATASET_NAMES"] = (data, expected_data)
        if number and expected_number and number != expected_number:
            differs[f"DATA.{split}.DATA_PATHS"] = (f"{number:,} images", f"{expected_number:,}")
    return differs


def _other_length(record: Record) -> Differences:
    """Return how the number of epochs differs from the configured one."""
    epochs = record.config["OPTIMIZER"]["num_epochs"]
    return {} if record.epochs in (None, epochs) else {"epochs done": (record.epochs, epochs)}


def _other_batch(record: Record, *expected: int) -> Differences:
    """Return how the global batch differs; a resumed run may have had several."""
    batches = record.batches
    if len(batches) == 1 and batches[0] in expected:
        return {}
    return {GLOBAL_BATCH: (", then ".join(map(str, batches)), expected[0])}


def _origin_of_benchmark(record: Record) -> Origin:
    """Return where a benchmark's weights come from."""
    trunk = record.config["MODEL"]["TRUNK"]
    if trunk["NAME"] != "pirl_ensemble":
        return _origin_of_initial_weights(record)
    key = "MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES"
    files = trunk["PIRL_ENSEMBLE"]["PARAMS_FILES"]
    digests = record.weights[key].split(", ") if key in record.weights else []
    members = [
        origin_of(file, digest, record.origins.get(file))
        for file, digest in itertools.zip_longest(files, digests)
    ]
    ensemble = Origin("PIRL-ens", {}, [text for member in members for text in member.unknown])
    are_pirl = all(member.row == "PIRL" and not member.differs for member in members)
    if not are_pirl or len({*(digests or files)}) != 2:
        ensemble.differs[key] = (files, "two PIRL runs")
    return ensemble


def _origin_of_initial_weights(record: Record) -> Origin:
    """Return where a run's ``PARAMS_FILE`` comes from."""
    file = record.config["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"]
    digest = record.weights.get("MODEL.WEIGHTS_INIT.PARAMS_FILE")
    return origin_of(file, digest, record.origins.get(file))


def origin_of(file: str, digest: str | None, recorded: Mapping[str, Any] | None) -> Origin:
    """Return where a weights file comes from. The file itself is not read: it may have changed.

    Args:
        file: the file's path; empty for random weights.
        digest: the file's SHA-256 when it was loaded; None if unknown.
        recorded: the record of its run, from :func:`read_origin`; None or empty if unknown.
    """
    path = Path(file)
    if not file:
        return Origin("Random")
    if digest is None and path.name in SUPERVISED.values():
        return Origin("Supervised", unknown=[f"whether {path.name} is torchvision's file"])
    if digest is not None and digest.startswith(tuple(SUPERVISED)):
        return Origin("Supervised")
    if not recorded:
        name = f"{path.parent.name}/{path.name}"
        return Origin(path.parent.name, {"weights": (name, "unknown pre-training")})
    record = record_of(json.loads(recorded["config"]), recorded["epochs"], recorded)
    if record.config["DATA"]["TRAIN"]["LABEL_SOURCES"]:  # a benchmark, from other weights
        origin = _origin_of_initial_weights(record)
        if not _is_frozen(record.config):
            trained = {"then trained with labels": (path.parent.name, "no")}
            origin.differs = trained | origin.differs
        return origin
    rows = {row: _differences_from(record, overrides) for row, overrides in PRETRAININGS.items()}
    nearest = min(rows, key=lambda row: len(rows[row]))
    differs = {f"pre-training {key}": values for key, values in rows[nearest].items()}
    origin = Origin(nearest, differs)
    if "TRAIN" not in record.images:
        origin.unknown.append("the number of images in its pre-training")
    return origin


def _is_frozen(config: Mapping[str, Any]) -> bool:
    """Return whether a benchmark left its trunk unchanged."""
    settings = config["MODEL"]["FEATURE_EVAL_SETTINGS"]
    freezes = settings["FREEZE_TRUNK_ONLY"] or settings["FREEZE_TRUNK_AND_HEAD"]
    return bool(settings["EVAL_MODE_ON"] and freezes)


def _differences_from(record: Record, overrides: Iterable[str]) -> Differences:
    """Return how a pre-training differs from a config."""
    expected = compose(*overrides)
    return {
        **_other_images(record, expected),
        **_other_length(record),
        **_other_batch(record, global_batch(expected)),
        **run_differences(record_config(record.config), record_config(expected), PAPER),
    }


@cache
def compose(*overrides: str) -> dict[str, Any]:
    """Compose a VISSL configuration as VISSL's own script does."""
    from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

    paths = [f"config.DATA.{split}.DATA_PATHS=[nowhere]" for split in ("TRAIN", "TEST")]
    # Benchmarks read the image size from the weights. The paper's is the one without a file.
    no_weights = "config.MODEL.WEIGHTS_INIT.PARAMS_FILE=''"
    composed = compose_hydra_configuration([*paths, no_weights, *overrides])
    _, config = convert_to_attrdict(composed, dump_config=False)
    recorded: dict[str, Any] = json.loads(config[RECORD].config)
    return recorded


def _data_set(config: Mapping[str, Any], split: str) -> str:
    """Return the names of a split's data sets, such as ``imagenet1k`` for a folder or a list."""
    names = map(str, config["DATA"][split]["DATASET_NAMES"])
    return "+".join(re.sub(r"^pirl_|_(folder|filelist)$", "", name) for name in names)


def _read_detection(path: Path) -> Run:
    results = json.loads((path / "results.json").read_text())
    config = str(results.get("config", ""))
    if config not in DETECTION_ROWS or results["mean"] is None:
        raise Refused(f"no finished trials of one of {', '.join(DETECTION_ROWS)}")
    # Find the row: the weights' pre-training, and the config that the paper uses for it.
    table, rows = DETECTION_ROWS[config]
    digest = results.get("weights_sha256")
    origin = origin_of(results.get("weights") or "unknown", digest, results.get("origin"))
    trains_batch_norm = config == "voc0712_moco24k"
    if results.get("weights_md5", "").startswith(MOCO_MD5):
        origin = Origin("MoCo")
    if trains_batch_norm:
        origin.row += " (BatchNorm fine-tuned)"
    elif origin.row not in rows:
        origin.differs["config"] = (config, f"the one for {origin.row}")
    options: Sequence[str] = results.get("options") or []
    for key, value in zip(options[::2], options[1::2], strict=True):  # KEY VALUE KEY VALUE …
        if key not in PAPER_DETECTION:
            origin.differs[key] = (value, "as in the config")
        # With fewer GPUs, Detectron2 uses smaller batches and rates, and more iterations. This
        # matters only if BatchNorm is trained.
    num_gpus = results.get("num_gpus", 8)
    if num_gpus != 8 and trains_batch_norm:
        origin.differs["num_gpus"] = (num_gpus, 8)
    if "images" not in results:
        origin.unknown.append("how many images it used")
    for name, number in results.get("images", {}).items():
        if number != DETECTION_IMAGES.get(name):
            origin.differs[name] = (f"{number:,} images", DETECTION_IMAGES.get(name, "none"))
    requested = results.get("requested", results["finished"])
    missing = requested - results["finished"]
    if missing:
        origin.unknown.append(f"the AP of {missing} of {requested} trials")
    figures = {key: float(results["mean"][key]) for key in ("AP", "AP50", "AP75")}
    return Run(path, origin.row, figures, None, origin.differs, origin.unknown, table)
