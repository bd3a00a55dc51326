"""Record a run's settings and images, and decide whether two runs are the same.

Complete composed configurations are compared, except for a short list of keys that may differ, such
as :data:`RESUMING`. Every key that is not on the list counts.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pirl_plugin.checkpoints.read import RUN_CONFIG, read_checkpoint, read_config, section_of
from pirl_plugin.system.comparison import Differences, differences, flat, format_differences
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import sha256_of, write_text
from pirl_plugin.vissl.sections import RECORD, num_ranks

if TYPE_CHECKING:
    from omegaconf import DictConfig

GLOBAL_BATCH = "global batch"
"""Number of images per step across all ranks; :func:`run_differences` adds it to the keys."""

FREE = (
    "CHECKPOINT",
    "DATA.DDP_BUCKET_CAP_MB",
    "DATA.ENABLE_ASYNC_GPU_COPY",
    "DATA.NUM_DATALOADER_WORKERS",
    "DATA.PIN_MEMORY",
    *(
        f"DATA.{split}.{key}"
        for split in ("TRAIN", "TEST")
        for key in (
            "BATCHSIZE_PER_REPLICA",  # the global batch has its own key
            "COPY_DESTINATION_DIR",
            "COPY_TO_LOCAL_DISK",
            "DATA_PATHS",
            "DATA_SOURCES",  # a folder or a list with the same images
            "LABEL_PATHS",
            "LABEL_SOURCES",
            "MMAP_MODE",
            "NEW_IMG_PATH_PREFIX",
            "REMOVE_IMG_PATH_PREFIX",
        )
    ),
    "DISTILLATION",  # read only with a distillation loss
    "DISTRIBUTED",
    "EXTRACT_FEATURES",
    "HOOKS.CHECK_NAN",
    "HOOKS.LOG_GPU_STATS",
    "HOOKS.MEMORY_SUMMARY",
    "HOOKS.MODEL_COMPLEXITY",
    "HOOKS.PERF_STATS",
    "HOOKS.PIRL_INPUT.channels_last",
    "HOOKS.PIRL_INPUT.compile",
    "HOOKS.PIRL_MONITOR",
    "HOOKS.PIRL_RUN",
    "HOOKS.TENSORBOARD_SETUP",
    "LOG_FREQUENCY",
    "LOSS.pirl_loss.bank.placement",
    "MACHINE",
    "METERS",
    "MODEL.ACTIVATION_CHECKPOINTING",
    "MODEL.CUDA_CACHE",
    "MONITORING",
    "MULTI_PROCESSING_METHOD",
    "PROFILING",
    "REPRODUCIBILITY",
    "SLURM",
    "SVM.force_retrain",
    "TRAINER.PIRL_MICRO_BATCHES",
    "VERBOSE",
)
"""Keys that cannot change a result: machine, workers, logging, paths, checkpoints."""
RESUMING = (
    *(key for key in FREE if key != "LOSS.pirl_loss.bank.placement"),  # rows are in other files
    GLOBAL_BATCH,
    "DATA.TRAIN.DATASET_NAMES",
    "DATA.TEST.DATASET_NAMES",
)
"""Keys that may differ when a run resumes, also how ranks share a batch.

Images are compared separately, by :func:`refuse_other_images`.
"""

RUN_RECORD = "record.json"
"""File with a :class:`Record`, for runs without a checkpoint, such as SVMs."""
_AT_DEFAULT = "HOST_DEFAULTS"
"""Recorded key: list of the keys at VISSL's default, which another VISSL may not have."""

Images = dict[str, Any]
"""Identity of a split's images, from ``PIRLDataset.identity``."""


@dataclass(frozen=True, repr=False)  # VISSL's log has the configuration itself
class Record:
    """A run's settings before VISSL modifies them.

    Attributes:
        config: the composed configuration, as JSON.
        weights: see :func:`hash_weights`.
        origins: file with initial weights → see :func:`read_origin`.
    """

    config: str
    weights: dict[str, str]
    origins: dict[str, dict[str, Any]]


def make_record(composed: DictConfig) -> Record:
    """Return the record of a composed configuration, before VISSL modifies it.

    VISSL scales learning rates, sets the number of images, and derives other values. These depend
    on the machine; the composed values do not.

    Args:
        composed: the ``config`` section, resolved.
    """
    import vissl
    from omegaconf import OmegaConf

    values: Any = OmegaConf.to_container(composed)
    file = Path(vissl.__file__).with_name("config") / "defaults.yaml"
    defaults = read_config(file)["config"]
    values[_AT_DEFAULT] = sorted(flat(values).keys() - differences(values, defaults))
    initial = values["MODEL"]["WEIGHTS_INIT"]
    if os.path.isfile(initial["PARAMS_FILE"] or ""):
        initial["PARAMS_FILE"] = os.path.abspath(initial["PARAMS_FILE"])
    files = itertools.chain(*_weights_files(values).values())
    return record_config(values, {file: read_origin(Path(file)) for file in files})


def record_config(
    values: Mapping[str, Any], origins: Mapping[str, dict[str, Any]] | None = None
) -> Record:
    """Return the record of a complete configuration, with the initial weights as they are now.

    Args:
        values: the configuration, as plain values.
        origins: see :class:`Record`.
    """
    return Record(json.dumps(values, default=str), hash_weights(values), dict(origins or {}))


def read_origin(checkpoint: Path) -> dict[str, Any]:
    """Return the record of the run that wrote a checkpoint, with its number of ``epochs``.

    A copy of it stays valid if the file is moved or replaced.

    Returns:
        The record, see :func:`make_checkpoint_record`; empty for other files.
    """
    try:
        content = read_checkpoint(checkpoint, mapped=True)
    except (OSError, ValueError):  # no file, or another kind
        return {}
    section = section_of(content)
    if "config" not in section or "train_phase_idx" not in content:
        return {}  # weights that a command has written
    return {**section, "epochs": int(content["train_phase_idx"]) + 1}


def make_checkpoint_record(
    config: Mapping[str, Any],
    images: Mapping[str, Images],
    resumed: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the record that a run stores in its checkpoints, as plain values.

    Args:
        config: VISSL's complete configuration, with the run's :class:`Record`.
        images: identity of the images in each split.
        resumed: record in the checkpoint to resume from; None for a new run.

    Returns:
        ``config``, ``weights``, ``origins``, ``images``, and ``global_batches``: all global batch
        sizes used in the run, because a resumed run may have another one.
    """
    record: Record = config[RECORD]
    batches = list((resumed or {}).get("global_batches") or [])
    batch = global_batch(config)
    return {
        **asdict(record),
        "images": dict(images),
        "global_batches": batches if batch in batches else [*batches, batch],
    }


def global_batch(config: Mapping[str, Any]) -> int:
    """Return the number of images per step across all ranks.

    Ranks may share the batch in any way. Micro-batches are parts of ``BATCHSIZE_PER_REPLICA``.
    """
    return int(config["DATA"]["TRAIN"]["BATCHSIZE_PER_REPLICA"] * num_ranks(config))


def refuse_another_run(
    config: Mapping[str, Any], section: Mapping[str, Any], checkpoint: Path
) -> None:
    """Compare a configuration with the one in the checkpoint to resume from.

    Args:
        config: the complete configuration.
        section: this plugin's data in the checkpoint.
        checkpoint: the checkpoint's path.

    Raises:
        Refused: the settings differ.
    """
    recorded = Record(section["config"], section["weights"], {})
    differs = run_differences(config[RECORD], recorded, RESUMING)
    if not differs:
        return
    remedy = "Repeat the settings of that run, or choose another folder."
    if list(differs) == ["OPTIMIZER.num_epochs"]:
        remedy = (
            f"The learning rate depends on the number of epochs. To train longer, start a new run "
            f"in another folder from these weights, with "
            f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={checkpoint}."
        )
    changes = format_differences(differs, "config.{key} was {expected}, is {value}", width=200)
    raise Refused(f"{checkpoint} is from another run: {changes}. {remedy}")


def refuse_other_images(
    images: Mapping[str, Images], section: Mapping[str, Any], checkpoint: Path
) -> None:
    """Compare images with those in the checkpoint to resume from.

    Raises:
        Refused: a split has different images, or the same images in another order.
    """
    recorded = section.get("images") or {}
    for split, now in images.items():
        if split in recorded and recorded[split] != now:
            kind = "training" if split == "TRAIN" else "test"
            raise Refused(
                f"{checkpoint} is from a run with other {kind} images or classes "
                f"({recorded[split]['count']:,} images, now {now['count']:,}). Use the same images "
                f"(a moved folder is fine), or choose another folder."
            )


def write_run_config(config: str, folder: Path) -> None:
    """Write a run's configuration into its folder, as YAML for people to read."""
    values = json.loads(config)
    values.pop(_AT_DEFAULT, None)
    write_text(folder / RUN_CONFIG, yaml.safe_dump(values))


def run_differences(run: Record, expected: Record, free: Sequence[str]) -> Differences:
    """Compare two runs' complete configurations, except for keys that may differ.

    A list entry that repeats another key's values is left out, and so is a key that only one of two
    VISSL versions has, at its default. Initial weights are compared by file content.

    Args:
        run: the run's record.
        expected: the record to compare it with.
        free: keys and sections that may differ, such as :data:`RESUMING`.

    Returns:
        The differences, in configuration order.
    """
    settings = _settings(run)
    expected_settings = _settings(expected)
    # Another VISSL may lack keys, which do not count at their default.
    for own, other in ((settings, expected_settings), (expected_settings, settings)):
        at_default: Any = own.pop(_AT_DEFAULT, [])
        for key in set(at_default) - other.keys():
            own.pop(key, None)
    differs = differences(settings, expected_settings, free)
    # Interpolations repeat values in lists, such as TRANSFORMS[0].patch_size for VIEWS.patch_size.
    outside_lists = [values for key, values in differs.items() if "[" not in key]
    return {
        key: values
        for key, values in differs.items()
        if "[" not in key or values not in outside_lists
    }


def hash_weights(config: Mapping[str, Any]) -> dict[str, str]:
    """Hash the files with initial weights: key → SHA-256, or the name if a file is missing."""
    hashes = {}
    for key, files in _weights_files(config).items():
        contents = [sha256_of(Path(file)) if os.path.isfile(file) else file for file in files]
        hashes[key] = ", ".join(contents)
    return hashes


def _weights_files(config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return key → files with initial weights."""
    model = config["MODEL"]
    ensemble = model["TRUNK"].get("PIRL_ENSEMBLE") or {}
    return {
        "MODEL.WEIGHTS_INIT.PARAMS_FILE": [model["WEIGHTS_INIT"]["PARAMS_FILE"] or ""],
        "MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES": ensemble.get("PARAMS_FILES") or [],
    }


def _settings(record: Record) -> dict[str, object]:
    """Return the values to compare: dotted key → value, including ``GLOBAL_BATCH``."""
    values = json.loads(record.config)
    # The run does not read other losses' sections.
    losses = values.get("LOSS") or {}
    read = [key for key in ("name", losses.get("name")) if key in losses]
    values["LOSS"] = {key: losses[key] for key in read}

    settings = flat(values)
    settings.update(record.weights)
    settings[GLOBAL_BATCH] = global_batch(values)
    return settings
