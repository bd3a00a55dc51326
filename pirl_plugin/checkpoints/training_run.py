"""What a run is: the record in its checkpoints, which says whether a command is the same run."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from pirl_plugin.checkpoints.read import open_checkpoint
from pirl_plugin.checkpoints.run_folder import SECTION
from pirl_plugin.files import write_text

RUN_CONFIG = "train_config.yaml"
# What makes another run of a command. Learning rates that the host scales with the batch are
# compared before the scaling, for a run may go on with other ranks.
_KEYS = (
    "SEED_VALUE",
    "MODEL.TRUNK",
    "MODEL.HEAD.PARAMS",
    "MODEL.FEATURE_EVAL_SETTINGS",
    "OPTIMIZER.name",
    "OPTIMIZER.num_epochs",
    "OPTIMIZER.weight_decay",
    "OPTIMIZER.param_schedulers",
    "DATA.TRAIN.TRANSFORMS",
    "LOSS",
)
# Not of these, which say how a run computes, not what; or which the host fills in.
_FREE = ("num_train_samples", "bank.placement", "bank.overlap", "bank.seed")
_SHOWN = 120  # characters of a value
_SIZES = ("image_size", "size", "crop_size_image")  # of our views, torchvision's, VISSL's PIRL


def run_record(config: Mapping[str, Any], images: Mapping[str, str]) -> dict[str, Any]:
    """Return what a checkpoint says of its run.

    Args:
        config: the host's whole configuration.
        images: split to :func:`images_digest`.

    Returns:
        ``settings``, dotted key to JSON, and ``images``, which are compared; and ``config``, the
        whole configuration as JSON, for whoever evaluates the checkpoint.
    """
    plain = _plain(config)
    return {
        "settings": _settings(plain),
        "images": dict(images),
        "config": json.dumps(plain),
    }


def describe_other_run(
    config: Mapping[str, Any], content: Mapping[str, Any], path: str
) -> str | None:
    """Return what makes a configuration that of another run than a checkpoint's.

    Returns:
        One sentence with the keys that differ, found and expected; None where none does, or the
        checkpoint has no record.
    """
    before = (content.get(SECTION) or {}).get("settings") or {}
    now = _settings(_plain(config))
    differ = [k for k in {**before, **now} if before and _differs(k, before.get(k), now.get(k))]
    if not differ:
        return None
    said = "; ".join(
        f"config.{key} = {_short(now.get(key))}: expected {_short(before.get(key))}"
        for key in differ[:3]
    )
    more = f"; and {len(differ) - 3} more" if differ[3:] else ""
    return (
        f"{said}{more}, as in {path}; give the configuration of its run, or another "
        f"config.CHECKPOINT.DIR to start a new one"
    )


def describe_other_images(
    images: Mapping[str, str], content: Mapping[str, Any], path: str
) -> str | None:
    """Return the sentence for a split whose list of images is another; None where none is."""
    before = (content.get(SECTION) or {}).get("images") or {}
    for split, digest in images.items():
        if before.get(split, digest) != digest:
            return (
                f"config.DATA.{split.upper()}.DATA_PATHS: expected the same list of images as in "
                f"{path}, in the same order, for each has its row in it; bring them back (a moved "
                f"folder is fine), or give another config.CHECKPOINT.DIR to start a new run"
            )
    return None


def images_digest(paths: Iterable[str], root: str) -> str:
    """Return the SHA-256 of a list of images: their paths below ``root``, which may be moved.

    Example:
        >>> one, two = ["/a/1.jpg", "/a/2.jpg"], ["/b/1.jpg", "/b/2.jpg"]
        >>> images_digest(one, "/a") == images_digest(two, "/b") != images_digest(one[::-1], "/a")
        True
    """
    prefix, digest = os.path.join(root, ""), hashlib.sha256()
    for path in paths:
        digest.update(os.fsencode(path.removeprefix(prefix)) + b"\0")
    return digest.hexdigest()


def epochs(config: Mapping[str, Any]) -> int:
    """Return the training phases of a run, which are its epochs."""
    return int(config["OPTIMIZER"]["num_epochs"]) * int(
        config["DATA"]["TRAIN"].get("TRAIN_PHASES_PER_EPOCH", 1)
    )


def write_run_config(config: Mapping[str, Any], folder: Path) -> None:
    """Write the configuration of a run into its folder, for people; nothing resumes by it."""
    write_text(folder / RUN_CONFIG, yaml.safe_dump(_plain(config)))


def run_config(checkpoint: Path) -> dict[str, Any] | None:
    """Return the configuration of the run that wrote a checkpoint: from it, or the file beside it.

    Returns:
        It, or None where neither has it.

    Raises:
        ValueError: the file beside it is no YAML of a mapping.
    """
    try:
        text = (open_checkpoint(checkpoint).get(SECTION) or {}).get("config")
    except ValueError:  # of another kind, or no checkpoint
        text = None
    if text is not None:
        found: dict[str, Any] = json.loads(text)
        return found
    file = run_config_file(checkpoint)
    return None if file is None else read_config(file)


def run_config_file(checkpoint: Path) -> Path | None:
    """Return the configuration beside a checkpoint, or beside the file that it links to."""
    files = (folder / RUN_CONFIG for folder in (checkpoint.parent, checkpoint.resolve().parent))
    return next((file for file in files if file.is_file()), None)


def read_config(file: Path) -> dict[str, Any]:
    """Read the configuration in a file that the host has written.

    Raises:
        ValueError: the file is no YAML of a mapping.
    """
    try:
        config = yaml.safe_load(file.read_text())
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{file}: expected the configuration of a run; {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{file}: expected the configuration of a run; remove or repair it")
    return config


def channel_statistics(
    config: Mapping[str, Any] | None,
) -> tuple[list[float] | None, list[float] | None]:
    """Return mean and deviation by which images were normalised; None where it gives none."""
    section = (config or {}).get("HOOKS", {}).get("PIRL_INPUT") or {}
    data = (config or {}).get("DATA", {})
    return section.get("mean") or data.get("MEAN"), section.get("std") or data.get("STD")


def image_size_of(config: Mapping[str, Any] | None) -> int | None:
    """Return the side of training images, pixels; None where the transforms give none."""
    transforms = (config["DATA"]["TRAIN"]["TRANSFORMS"] or []) if config else []
    # The last one: a crop is of what an earlier transform has resized.
    sizes = (transform.get(key) for transform in reversed(transforms) for key in _SIZES)
    return next((size for size in sizes if isinstance(size, int)), None)


def _settings(config: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key in _KEYS:
        for name, value in _leaves(key, _at(config, key)):
            if not name.endswith(_FREE) and "PARAMS_FILES" not in name:
                found[name] = json.dumps(value, sort_keys=True, default=str)
    if (scaling := _at(config, "OPTIMIZER.param_schedulers.lr.auto_lr_scaling")) and scaling.get(
        "auto_scale"
    ):
        lr = "OPTIMIZER.param_schedulers.lr."
        found = {k: v for k, v in found.items() if not k.startswith(lr) or "auto_lr" in k}
    loss = _at(config, "LOSS.name")
    prefixes = ("LOSS.name", f"LOSS.{loss}")
    found = {
        key: value
        for key, value in found.items()
        if not key.startswith("LOSS")
        or (key.startswith(prefixes) and key != f"LOSS.{loss}.name")  # which the host fills in
    }
    weights = [_at(config, "MODEL.WEIGHTS_INIT.PARAMS_FILE")]
    weights += _at(config, "MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES") or []
    found["MODEL.WEIGHTS_INIT.PARAMS_FILE"] = json.dumps([_identity(file) for file in weights])
    return found


def _identity(file: str | None) -> str | None:
    """Return size and checksum of a file of weights; None for one that is no more there.

    The end of a file of ``torch.save`` holds the checksums of all its tensors.
    """
    if not file:
        return ""
    path = Path(file)
    if not path.is_file():
        return None
    with path.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - (1 << 16)))
        return f"{path.name}, {size} bytes, {zlib.crc32(opened.read()):08x}"


def _differs(key: str, before: str | None, now: str | None) -> bool:
    if key == "MODEL.WEIGHTS_INIT.PARAMS_FILE" and before and now:
        then, files = json.loads(before), json.loads(now)
        if len(then) == len(files):  # nothing reads a file again, which may be gone or renamed
            return any(
                None not in (a, b) and a.partition(",")[2] != b.partition(",")[2]
                for a, b in zip(then, files, strict=True)
            )
    return before != now


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as plain values, with absolute paths of images and weights."""
    given = config.to_dict() if hasattr(config, "to_dict") else config
    found: dict[str, Any] = json.loads(json.dumps(given, default=str))
    for split in ("TRAIN", "TEST"):
        section = _at(found, f"DATA.{split}") or {}
        for key in ("DATA_PATHS", "LABEL_PATHS"):
            if section.get(key):
                section[key] = [_absolute(path) for path in section[key]]
    if _at(found, "MODEL.WEIGHTS_INIT.PARAMS_FILE"):
        weights = found["MODEL"]["WEIGHTS_INIT"]
        weights["PARAMS_FILE"] = _absolute(weights["PARAMS_FILE"])
    if files := _at(found, "MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES"):
        found["MODEL"]["TRUNK"]["PIRL_ENSEMBLE"]["PARAMS_FILES"] = [_absolute(f) for f in files]
    return found


def _absolute(path: str) -> str:
    return path if not path or "://" in path else os.path.abspath(path)


def _at(config: Mapping[str, Any], key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _leaves(name: str, value: object) -> list[tuple[str, object]]:
    if not isinstance(value, Mapping):
        return [(name, value)]
    return [leaf for key, part in value.items() for leaf in _leaves(f"{name}.{key}", part)]


def _short(value: str | None) -> str:
    text = "not set" if value is None else value
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
