"""The record of a run in its checkpoints, and the comparison of a command with this record."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from pirl_plugin.checkpoints.read import open_checkpoint
from pirl_plugin.failures import Refused
from pirl_plugin.files import write_text

SECTION = "pirl_plugin"
"""Key of this plugin's data in a checkpoint of the host."""
RUN_CONFIG = "train_config.yaml"
# The settings that define a run. If the host scales learning rates with the batch, their values
# before scaling are compared, because a run may resume with another number of ranks.
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
    "DATA.TRAIN.DATA_LIMIT",
    "DATA.TRAIN.DATA_LIMIT_SAMPLING",
    "LOSS.name",
)
# Keys that may differ: they do not change the result, or the host sets them.
_FREE = ("num_train_samples", "bank.placement", "bank.seed")
_LR = "OPTIMIZER.param_schedulers.lr."
_WEIGHTS = ("MODEL.WEIGHTS_INIT.PARAMS_FILE", "MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES")
_SIZES = ("image_size", "size", "crop_size_image")  # in our views, torchvision's, VISSL's PIRL


def run_record(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a run for its checkpoints.

    Args:
        config: the host's whole configuration.

    Returns:
        ``settings``, dotted key to JSON, for the comparison; and ``config``, the whole
        configuration as JSON, for the evaluation of the checkpoint.
    """
    plain = _plain(config)
    return {"settings": run_settings(plain), "config": json.dumps(plain)}


def run_settings(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that define a run: dotted key to JSON."""
    config, loss = _plain(config), f"LOSS.{_at(config, 'LOSS.name')}"
    scaled = (_at(config, f"{_LR}auto_lr_scaling") or {}).get("auto_scale")
    found = {}
    for key in (*_KEYS, loss):
        for name, value in _leaves(key, _at(config, key)):
            unread = scaled and name.startswith(_LR) and "auto_lr" not in name
            if not unread and name not in _WEIGHTS and not name.endswith((*_FREE, f"{loss}.name")):
                found[name] = json.dumps(value, sort_keys=True)
    for key in _WEIGHTS:
        files = _at(config, key) or []
        found[key] = ", ".join(map(_identity, [files] if isinstance(files, str) else files))
    return found


def describe_difference(
    before: Mapping[str, str], now: Mapping[str, str], path: str | Path
) -> str | None:
    """Return how a command differs from the run of a checkpoint.

    Args:
        before: values of :func:`run_settings` or :func:`images_digest` by key, from the checkpoint;
            empty if it has no record.
        now: the same values of the command.
        path: path of the checkpoint.

    Returns:
        One sentence with the keys that differ, found and expected; None if there are none.
    """
    differ = [key for key in {**before, **now} if before and before.get(key) != now.get(key)]
    if not differ:
        return None
    shown = "; ".join(
        f"config.{key} = {now.get(key, 'not set')}: expected {before.get(key, 'not set')}"
        for key in differ[:3]
    )
    return (
        f"{shown}, as in {path}; give the configuration and the images of its run (a moved "
        f"folder is fine), or another config.CHECKPOINT.DIR to start a new run"
    )


def images_digest(paths: Iterable[str], root: str) -> str:
    """Return number and SHA-256 of a list of images, from their paths below ``root``, in order.

    Example:
        >>> one, two = ["/a/1.jpg", "/a/2.jpg"], ["/b/1.jpg", "/b/2.jpg"]
        >>> images_digest(one, "/a") == images_digest(two, "/b") != images_digest(one[::-1], "/a")
        True
    """
    prefix, digest, count = os.path.join(root, ""), hashlib.sha256(), 0
    for path in paths:
        digest.update(os.fsencode(path.removeprefix(prefix)) + b"\0")
        count += 1
    return f"a list of {count:,} images, SHA-256 {digest.hexdigest()}"


def write_run_config(config: Mapping[str, Any], folder: Path) -> None:
    """Write the configuration of a run into its folder, for people; resuming does not read it."""
    write_text(folder / RUN_CONFIG, yaml.safe_dump(_plain(config)))


def run_config(checkpoint: Path) -> dict[str, Any] | None:
    """Return the configuration of a checkpoint's run, from the checkpoint or the file beside it.

    Returns:
        The configuration; None if neither has it.

    Raises:
        ValueError: the file beside it is not a YAML mapping.
    """
    try:
        text = (open_checkpoint(checkpoint).get(SECTION) or {}).get("config")
    except ValueError:  # another kind of file, or not a checkpoint
        text = None
    if text is not None:
        found: dict[str, Any] = json.loads(text)
        return found
    for folder in (checkpoint.parent, checkpoint.resolve().parent):  # of a link, of its target
        if (folder / RUN_CONFIG).is_file():
            return read_config(folder / RUN_CONFIG)
    return None


def read_config(file: Path) -> dict[str, Any]:
    """Read a configuration from a file that the host has written.

    Raises:
        ValueError: the file is not a YAML mapping.
    """
    safe = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where libyaml is
    config = yaml.load(file.read_text(), Loader=safe)
    if not isinstance(config, dict):
        raise Refused(f"{file}: expected the configuration of a run; remove or repair it")
    return config


def image_size_of(config: Mapping[str, Any] | None) -> int | None:
    """Return the side of training images, pixels; None if no transform has a size."""
    transforms = (config["DATA"]["TRAIN"]["TRANSFORMS"] or []) if config else []
    # The last size counts: a crop follows an earlier resizing.
    sizes = (transform.get(key) for transform in reversed(transforms) for key in _SIZES)
    return next((size for size in sizes if isinstance(size, int)), None)


def _identity(file: str) -> str:
    """Return size and checksum of a file of weights, or its name if there is no such file.

    Only the end of the file is read: ``torch.save`` writes the checksums of all tensors there.
    """
    if not os.path.isfile(file):
        return file
    with Path(file).open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - (1 << 16)))
        return f"a file of {size} bytes, CRC {zlib.crc32(opened.read()):08x}"


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as plain values, with an absolute path of the initial weights."""
    given = config.to_dict() if hasattr(config, "to_dict") else config
    found: dict[str, Any] = json.loads(json.dumps(given, default=str))
    if os.path.isfile(file := _at(found, _WEIGHTS[0]) or ""):
        found["MODEL"]["WEIGHTS_INIT"]["PARAMS_FILE"] = os.path.abspath(file)
    return found


def _at(config: Mapping[str, Any], key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    if not isinstance(value, Mapping):
        yield name, value
        return
    for key, part in value.items():
        yield from _leaves(f"{name}.{key}", part)
