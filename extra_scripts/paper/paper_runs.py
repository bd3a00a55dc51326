"""Which row of the paper's tables a finished run fills, and what makes it another run.

A run fills a row if its whole configuration, and that of its checkpoint's pre-training, equal the
configs of this row, except for what :data:`PAPER` names. Its numbers of images and epochs
come from the records in the checkpoints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from paper_tables import Run
from published import DETECTION_ROWS, LAYERS, published_tables

from pirl_plugin.checkpoints.read import open_checkpoint
from pirl_plugin.checkpoints.training_run import (
    RUN_CONFIG,
    CheckpointName,
    read_config,
    run_config,
    section_of,
)
from pirl_plugin.evaluation.host_results import final_checkpoint, linear_accuracy, svm_map
from pirl_plugin.system.comparison import Differences, in_words
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import sha256_of
from pirl_plugin.system.host_config import config_root
from pirl_plugin.vissl.import_hook import finder
from pirl_plugin.vissl.resume.record import (
    FREE,
    GLOBAL_BATCH,
    data_set_of,
    run_differences,
    weights_of,
)

_JIGSAW = "config=pretrain/pirl/jigsaw_8node"
_BASELINE = "config=pretrain/pirl/jigsaw_baseline_8node"
PRETRAININGS: dict[str, tuple[str, ...]] = {
    "PIRL": (_JIGSAW,),
    "PIRL-c2x": (_JIGSAW, "+config/pirl/models=resnet50_c2x"),
    "PIRL (YFCC-1M)": (_JIGSAW, "+config/pirl/datasets=yfcc1m"),
    "PIRL (Jigsaw)": (_JIGSAW, "+config/pirl/epochs=analysis_400"),
    "PIRL (Rotation)": ("config=pretrain/pirl/rotation_8node",),
    "PIRL (Rotation + Jigsaw)": ("config=pretrain/pirl/rotation_jigsaw_8node",),
    "NPID++": ("config=pretrain/pirl/npidpp_8node",),
    "NPID": ("config=pretrain/pirl/npid_8node",),
    "Jigsaw": (_BASELINE,),
    "Jigsaw (YFCC-1M)": (_BASELINE, "+config/pirl/datasets=yfcc1m"),
    "Rotation": ("config=pretrain/pirl/rotation_baseline_8node",),
}
"""Row of the paper's tables → overrides of its pre-training."""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark of the paper on one data set.

    Attributes:
        column: column of the paper's tables.
        config: name of the config.
        top: k of the accuracy that the column has; not used for SVMs.
    """

    column: str
    config: str
    top: int = 1


BENCHMARKS = {
    "imagenet1k": Benchmark("ImageNet", "linear_imagenet1k"),
    "places205": Benchmark("Places205", "linear_places205"),
    "inaturalist18": Benchmark("iNaturalist-2018", "linear_inaturalist18"),
    "imagenet1k_1percent": Benchmark("1 %", "semi_supervised_imagenet1k_1percent", top=5),
    "imagenet1k_10percent": Benchmark("10 %", "semi_supervised_imagenet1k_10percent", top=5),
    "voc07": Benchmark("VOC07", "svm_voc07"),
}
"""Data set → its benchmark."""
IMAGES = {
    "imagenet1k": {"TRAIN": 1_281_167, "TEST": 50_000},
    "imagenet1k_1percent": {"TRAIN": 12_811, "TEST": 50_000},
    "imagenet1k_10percent": {"TRAIN": 128_116, "TEST": 50_000},
    "places205": {"TRAIN": 2_448_873, "TEST": 20_500},
    "inaturalist18": {"TRAIN": 437_513, "TEST": 24_426},
    "voc07": {"TRAIN": 5_011, "TEST": 4_952},
    "yfcc1m": {"TRAIN": 1_000_000},
}
"""Data set → number of images of each split."""

PAPER = (*FREE, "SEED_VALUE", "LOSS.pirl_loss.bank.seed")
"""Free in a repetition of the paper's run: also the seed."""
# A benchmark's weights are its input, not a setting.
_INPUT = ("MODEL.WEIGHTS_INIT", "MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES")
# Features for SVMs are computed without a head, a loss or an optimizer.
_NOT_READ_FOR_SVMS = ("OPTIMIZER", "LOSS", "MODEL.HEAD", GLOBAL_BATCH)
# What a detection may change: seed, folder, device, and what it shows.
_DETECTION_FREE = ("SEED", "OUTPUT_DIR", "MODEL.DEVICE", "DATALOADER.NUM_WORKERS", "VIS_PERIOD")
# torchvision's first ResNet-50, which the paper's supervised rows use; the second has a better
# training. The names have the beginning of the SHA-256.
_SUPERVISED = re.compile(r"resnet50-(19c8e357|0676ba61)\.pth")
_PRETRAINING = "pre-training "  # begins the keys of a pre-training


@dataclass(frozen=True)
class Record:
    """What is known of the run that wrote a checkpoint.

    Attributes:
        config: the whole configuration; None if it is not known.
        epochs: number of epochs that the run had finished; None if it is not known.
        images: split → number of images; without the splits of which it is not known.
        weights: key → content of the files of initial weights, when they were read.
    """

    config: dict[str, Any] | None = None
    epochs: int | None = None
    images: dict[str, int] = field(default_factory=dict)
    weights: dict[str, str] = field(default_factory=dict)


def read_record(checkpoint: Path) -> Record:
    """Read the record of a run from a checkpoint, or what its name and folder tell.

    A checkpoint that was removed leaves ``train_config.yaml``, and a link leaves the name of its
    target.
    """
    content: Mapping[str, Any] = {}
    if checkpoint.is_file():
        try:
            content = open_checkpoint(checkpoint)
        except ValueError:  # not a checkpoint of the host, such as a file of torchvision
            content = {}
    section = section_of(content)
    config = run_config(checkpoint)
    return Record(
        config,
        _epochs_done(checkpoint, content),
        _numbers_of_images(section, config),
        section.get("weights") or {},
    )


def _epochs_done(checkpoint: Path, content: Mapping[str, Any]) -> int | None:
    if "train_phase_idx" in content:
        return int(content["train_phase_idx"]) + 1
    name = CheckpointName.parse(checkpoint.resolve().name)
    return name.number + 1 if name is not None and name.kind == "phase" else None


def _numbers_of_images(
    section: Mapping[str, Any], config: Mapping[str, Any] | None
) -> dict[str, int]:
    """Return split → number of images, from the list of images or from the memory bank."""
    images = {}
    loss = ((config or {}).get("LOSS") or {}).get("pirl_loss") or {}
    if (loss.get("num_train_samples") or -1) > 0:
        images["TRAIN"] = int(loss["num_train_samples"])
    for split, recorded in (section.get("images") or {}).items():
        images[split] = int(recorded["count"])
    return images


def read_run(path: Path) -> Run:
    """Read the folder of a benchmark of the host or of a detection.

    Args:
        path: folder with ``train_config.yaml`` or ``results.json``.

    Raises:
        FileNotFoundError: it is not the folder of a run.
        ValueError: the run is not finished, or is not a benchmark of the paper.
    """
    if (path / "results.json").is_file():
        return _read_detection(path)
    # What was measured. SVMs leave no checkpoint, but train_config.yaml.
    record = read_record(final_checkpoint(path) or path / "checkpoint.torch")
    config = record.config or read_config(path / RUN_CONFIG)
    evaluation = config["MODEL"]["FEATURE_EVAL_SETTINGS"]
    data = _data_set(config)
    labelled = evaluation["EVAL_MODE_ON"] or config["DATA"]["TRAIN"].get("LABEL_SOURCES")
    if not labelled or data not in BENCHMARKS:
        raise Refused(f"{path}: expected a benchmark on one of {', '.join(BENCHMARKS)}")
    benchmark = BENCHMARKS[data]

    # The figures: of the best layer, and for Table 7 of all layers.
    with_svms = evaluation["EXTRACT_TRUNK_FEATURES_ONLY"]
    top1 = svm_map(path, config) if with_svms else linear_accuracy(path)
    best = max(top1, key=lambda layer: top1[layer])
    if benchmark.top == 1:
        figures = {benchmark.column: top1[best]}
    else:
        figures = {benchmark.column: linear_accuracy(path, benchmark.top)[best]}
    if benchmark.top == 1 and not with_svms:
        figures |= {f"{benchmark.column} {layer}": top1[layer] for layer in LAYERS if layer in top1}

    # Which row: its pre-training is the paper's, and so is the benchmark.
    row, differs = _origin_of_benchmark(config, record)
    overrides = [f"config=benchmark/pirl/{benchmark.config}"]
    if row == "PIRL-ens":
        overrides = ["config=benchmark/pirl/ensemble_imagenet1k"]
    elif row == "PIRL-c2x":
        overrides.append("+config/pirl/linear=resnet50_c2x")
    free = (*PAPER, *_INPUT, *(_NOT_READ_FOR_SVMS if with_svms else ()))
    differs |= run_differences(config, compose(*overrides), free)
    differs |= _other_length(record, config, data, with_svms)
    return _run(path, row, figures, differs, layer=best if best in LAYERS else None)


def _run(
    path: Path,
    row: str,
    figures: dict[str, float],
    differs: Differences,
    layer: str | None = None,
    table: int | None = None,
) -> Run:
    """Return a run, with the tables that have its row and columns."""
    with_columns = [entry for entry in published_tables() if set(figures) & set(entry["columns"])]
    numbers = [entry["number"] for entry in with_columns if row in entry["rows"]]
    if table is not None:
        numbers = [table]
    if not numbers:  # a run of its own
        numbers = [with_columns[0]["number"]]
    is_row = any(row in entry["rows"] for entry in published_tables())
    name = f"{path.name}, not {row}" if is_row else path.name
    label = f"{name}: {_three_of(differs)}"
    return Run(path, row, tuple(numbers), figures, layer, differs, label)


def _three_of(differs: Differences) -> str:
    """Return the first three differences in words, those of the pre-training first."""
    first = dict(list(differs.items())[:3])
    pattern = "{key} {value} ({expected})"
    pretraining = {
        key.removeprefix(_PRETRAINING): values
        for key, values in first.items()
        if key.startswith(_PRETRAINING)
    }
    benchmark = {key: values for key, values in first.items() if not key.startswith(_PRETRAINING)}
    parts = []
    if pretraining:
        parts.append(f"pre-training: {in_words(pretraining, pattern)}")
    if benchmark:
        parts.append(f"benchmark: {in_words(benchmark, pattern)}")
    if len(differs) > 3:
        parts.append(f"{len(differs) - 3} more")
    return "; ".join(parts)


def _other_length(
    record: Record, config: Mapping[str, Any], data: str, without_epochs: bool = False
) -> Differences:
    """Return how numbers of epochs and images differ from the configured and the paper's."""
    differs: Differences = {}
    epochs = config["OPTIMIZER"]["num_epochs"]
    if not without_epochs and record.epochs not in (None, epochs):
        differs["epochs done"] = (record.epochs, epochs)
    for split, expected in IMAGES.get(data, {}).items():
        if record.images.get(split, expected) != expected:
            images = f"{record.images[split]:,} images"
            differs[f"DATA.{split}.DATA_PATHS"] = (images, f"{expected:,}")
    return differs


def _origin_of_benchmark(config: Mapping[str, Any], record: Record) -> tuple[str, Differences]:
    """Return the row of the pre-training of a benchmark's weights, and what differs."""
    trunk = config["MODEL"]["TRUNK"]
    if trunk["NAME"] == "pirl_ensemble":
        files = trunk["PIRL_ENSEMBLE"]["PARAMS_FILES"]
        members = [origin_of(file) for file in files]
        if members == [("PIRL", {})] * 2 and Path(files[0]).resolve() != Path(files[1]).resolve():
            return "PIRL-ens", {}
        return "PIRL-ens", {"MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES": (files, "two runs of PIRL")}
    checkpoint = config["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"]
    row, differs = origin_of(checkpoint)
    key = "MODEL.WEIGHTS_INIT.PARAMS_FILE"
    measured = record.weights.get(key)
    if measured and Path(checkpoint).is_file() and measured != weights_of(config)[key]:
        differs[key] = ("another file now", "the file that was measured")
    return row, differs


def origin_of(checkpoint: str) -> tuple[str, Differences]:
    """Return the row that is nearest to a checkpoint's pre-training, and what differs.

    Args:
        checkpoint: path of a file of weights; empty for random weights.
    """
    if not checkpoint:
        return "Random", {}
    path = Path(checkpoint)
    supervised = _SUPERVISED.fullmatch(path.name)
    if supervised and (not path.is_file() or sha256_of(path).startswith(supervised[1])):
        return "Supervised", {}
    record = read_record(path)
    config = record.config
    if config is None:
        name = f"{path.parent.name}/{path.name}"
        return path.parent.name, {"weights": (name, "unknown pre-training")}
    if config["MODEL"]["FEATURE_EVAL_SETTINGS"]["EVAL_MODE_ON"]:  # a benchmark's own checkpoint
        return origin_of(config["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"])
    rows = {
        row: run_differences(config, compose(*overrides), PAPER)
        for row, overrides in PRETRAININGS.items()
    }
    nearest = min(rows, key=lambda row: len(rows[row]))
    differs = {**rows[nearest], **_other_length(record, config, _data_set(config))}
    return nearest, {f"{_PRETRAINING}{key}": values for key, values in differs.items()}


@cache
def compose(*overrides: str) -> dict[str, Any]:
    """Compose a configuration of the host as its own script does."""
    finder.install()
    from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

    paths = [f"config.DATA.{split}.DATA_PATHS=[nowhere]" for split in ("TRAIN", "TEST")]
    # Benchmarks take the size of images from the weights. The paper's size is that without a file.
    no_weights = "config.MODEL.WEIGHTS_INIT.PARAMS_FILE=''"
    composed = compose_hydra_configuration([*paths, no_weights, *overrides])
    config: dict[str, Any]
    _, config = convert_to_attrdict(composed, dump_config=False)
    return config


def _data_set(config: Mapping[str, Any]) -> str:
    """Return the data set of training, by its name in :data:`IMAGES` if it is there."""
    names = []
    for name in map(str, config["DATA"]["TRAIN"]["DATASET_NAMES"]):
        short = data_set_of(name)
        names.append(short if short in IMAGES else name)
    return "+".join(names)


def _read_detection(path: Path) -> Run:
    results = json.loads((path / "results.json").read_text())
    config = str(results.get("config", ""))
    name = Path(config).stem
    if name not in DETECTION_ROWS or results["mean"] is None:
        raise Refused(f"{path}: expected finished trials of {', '.join(DETECTION_ROWS)}")
    # Which row: the weights' pre-training, and the config that the paper uses for it.
    table, rows = DETECTION_ROWS[name]
    weights = Path(results.get("weights") or "unknown")
    row, differs = origin_of(str(weights))
    if name == "voc0712_moco24k":
        row += " (BatchNorm fine-tuned)"
    elif row not in rows:
        differs["config"] = (name, f"that of {row}")
    if config != name and not _is_our_file(Path(config), name):
        differs["config"] = (config, name)
    # The file may have been replaced since.
    digest = results.get("weights_sha256")
    if digest and weights.is_file() and sha256_of(weights) != digest:
        differs["weights"] = ("another file now", "the file that was measured")
    options = iter(results.get("options") or [])
    for key, value in zip(options, options, strict=True):  # KEY VALUE KEY VALUE …
        if key not in _DETECTION_FREE:
            differs[key] = (value, "as in the config")
    num_gpus = results.get("num_gpus", 8)
    if num_gpus != 8:  # Detectron2 scales batch, rate and iterations
        differs["num_gpus"] = (num_gpus, 8)
    figures = {key: float(results["mean"][key]) for key in ("AP", "AP50", "AP75")}
    return _run(path, row, figures, differs, table=table)


def _is_our_file(file: Path, name: str) -> bool:
    """Return whether a file is one of our configs for Detectron2, and not a copy with changes."""
    return file.resolve() == (config_root() / "detection" / f"{name}.yaml").resolve()
