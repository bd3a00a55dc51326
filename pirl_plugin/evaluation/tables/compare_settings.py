"""Compare the settings of a finished run with those that the paper fixes for a row."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from pirl_plugin.evaluation.tables.paper_settings.free import OPTIONAL
from pirl_plugin.settings import TRAIN_STEP

IMAGENET, PLACES, INATURALIST, VOC07, YFCC = (
    "ImageNet",
    "Places205",
    "iNaturalist-2018",
    "VOC07",
    "YFCC-1M",
)
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
ABSENT = "absent"
_EARLIER = re.compile(r"train_config_(\d+)\.yaml")
_DATA_SETS = {  # of a configuration's DATASET_NAMES → the paper's name
    r"(pirl_)?imagenet1k(_folder|_filelist)?": IMAGENET,
    r"(pirl_)?imagenet1k_1percent": "1 % of ImageNet",
    r"(pirl_)?imagenet1k_10percent": "10 % of ImageNet",
    r"(pirl_)?places205(_folder|_filelist)?": PLACES,
    r"(pirl_)?inaturalist18(_folder|_filelist)?": INATURALIST,
    r"(pirl_)?voc(20)?07(_folder|_filelist)?": VOC07,
    r"(pirl_)?yfcc1m(_folder|_filelist)?": YFCC,
}
_TRUNK_SECTIONS = {
    "resnet": ("RESNETS",),
    "pirl_resnet": ("PIRL_RESNET",),
    "pirl_ensemble": ("PIRL_ENSEMBLE", "RESNETS"),
}
Differences = dict[str, tuple[object, object]]
"""Key → what the run has, and what the row has."""


def flatten(settings: Mapping[str, object]) -> dict[str, object]:
    """Dotted key → value; a later key takes the place of an earlier one.

    A list is one value, unless it holds mappings.

    Example:
        >>> flatten({"A": {"B": 1, "C": [{"D": 2}]}, "A.B": 3})
        {'A.B': 3, 'A.C.0.D': 2}
    """
    found: dict[str, object] = {}
    for key, value in settings.items():
        entries = _entries(value)
        if entries is None:
            if "." in key:  # only such a key can have earlier ones below it
                for stale in [k for k in found if k.startswith(f"{key}.")]:
                    del found[stale]
            found[key] = value
        else:
            found |= {f"{key}.{below}": leaf for below, leaf in flatten(entries).items()}
    return found


def _entries(value: object) -> Mapping[str, object] | None:
    """The entries of a mapping, or of a list that holds mappings; None of anything else."""
    if isinstance(value, Mapping) and value:
        return {str(key): entry for key, entry in value.items()}
    if isinstance(value, list) and any(_entries(entry) is not None for entry in value):
        return {str(i): entry for i, entry in enumerate(value)}
    return None


def settings_of(config: Mapping[str, Any]) -> dict[str, object]:
    """What a run of the host read of its configuration, with dotted keys.

    Sections of other losses, trunks and schedules are left out, and the train step of micro-batches
    is the host's. ``data set``, ``test data set`` and
    ``global batch`` take the place of the keys that give them.

    Args:
        config: as in ``train_config.yaml``.
    """
    found = flatten(config)
    if found.get("TRAINER.TRAIN_STEP_NAME") == TRAIN_STEP:  # its gradient is the whole batch's
        found["TRAINER.TRAIN_STEP_NAME"] = "standard_train_step"
    train, test = (config["DATA"][split].get("DATASET_NAMES", []) for split in ("TRAIN", "TEST"))
    for split in ("TRAIN", "TEST"):
        found.pop(f"DATA.{split}.DATASET_NAMES", None)
        found = {k: v for k, v in found.items() if not k.startswith(f"DATA.{split}.DATASET_NAMES.")}
    machines = config.get("DISTRIBUTED", {})
    batch = config["DATA"]["TRAIN"].get("BATCHSIZE_PER_REPLICA", 0)
    processes = machines.get("NUM_NODES", 1) * machines.get("NUM_PROC_PER_NODE", 1)
    loss, trunk = found.get("LOSS.name"), found.get("MODEL.TRUNK.NAME")
    rate = "OPTIMIZER.param_schedulers.lr"
    schedule = SCHEDULES.get(str(found.get(f"{rate}.name")))
    kept = {
        "data set": data_set(train),
        "test data set": data_set(test),
        "global batch": batch * processes,
    }
    sections = _TRUNK_SECTIONS.get(str(trunk))
    for key, value in found.items():
        parts = key.split(".")
        if parts[0] == "LOSS" and len(parts) > 2 and parts[1] != loss:
            continue
        if key.startswith("MODEL.TRUNK.") and len(parts) > 3 and sections is not None:
            if parts[2] not in sections:
                continue
        elif key.startswith("MODEL.TRUNK.") and value in ({}, None) and parts[2] != "NAME":
            continue
        if key.startswith(f"{rate}_head.") and not found.get(
            "OPTIMIZER.head_optimizer_params.use_different_lr"
        ):
            continue
        values = parts[3] if key.startswith(f"{rate}.") else ""
        if schedule and values not in ("", "name", "update_interval", *sum(schedule, ())):
            continue
        kept[key] = value
    return kept


def data_set(names: object) -> str:
    """The paper's name of a data set, or the configuration's own where it is not of the paper."""
    texts = [str(name) for name in names] if isinstance(names, list) else [str(names)]
    known = [
        name
        for text in texts
        for pattern, name in _DATA_SETS.items()
        if re.fullmatch(pattern, text)
    ]
    return known[0] if len(known) == len(texts) == 1 else " + ".join(texts)


def changes(
    found: Mapping[str, object], before: Mapping[str, object], free: Iterable[str]
) -> Differences:
    """The keys that two runs share and in which they differ.

    Args:
        found: dotted key → value of one.
        before: of the other, which may be of another version of this package.
        free: patterns of keys that may differ.
    """
    free = tuple(free)
    return {
        key: (value, before[key])
        for key, value in found.items()
        if key in before and not _matches(key, free) and not same(value, before[key])
    }


def differences(
    found: Mapping[str, object], fixed: Mapping[str, object], free: Iterable[str]
) -> Differences:
    """The keys in which a run is not of a row.

    Args:
        found: dotted key → value of the run.
        fixed: what the row has; nested or dotted.
        free: patterns of keys that may differ where ``fixed`` does not name them.
    """
    wanted = flatten(fixed)
    free = tuple(free)
    differ: Differences = {}
    for key, value in wanted.items():
        if key not in found:
            optional = _matches(key, OPTIONAL)
            inside = any(k.startswith(f"{key}.") for k in found)  # given below, as another key
            if not optional and not inside:
                differ[key] = (ABSENT, value)
        elif not same(found[key], value):
            differ[key] = (found[key], value)
    for key, value in found.items():
        if key not in wanted and not _matches(key, free):
            differ[key] = (value, ABSENT)
    return differ


@cache
def _matches(key: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def same(one: object, other: object) -> bool:
    """Equality, of numbers but for rounding."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if any(isinstance(value, (bool, str)) or value is None for value in (one, other)):
        return type(one) is type(other) and bool(one == other)
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)


def settings_key(found: Mapping[str, object], free: Iterable[str]) -> str:
    """A text that is the same for runs which may be averaged: all settings that are not free."""
    free = tuple(free)
    kept = {k: v for k, v in found.items() if not _matches(k, free)}
    return json.dumps(kept, sort_keys=True, default=str)


def describe(differ: Differences) -> str:
    """``OPTIMIZER.num_epochs 200 (800), …``: in words, the row's value in brackets."""
    return ", ".join(
        f"{key} {_short(mine)}" + (f" ({_short(theirs)})" if theirs != ABSENT else "")
        for key, (mine, theirs) in differ.items()
    )


def _short(value: object) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:37]}…"


def earlier_configs(folder: Path) -> dict[int, Path]:
    """Configurations with which a run was trained before it went on with others, by number."""
    found = ((_EARLIER.fullmatch(file.name), file) for file in folder.glob("train_config_*.yaml"))
    return dict(sorted((int(match[1]), file) for match, file in found if match))
