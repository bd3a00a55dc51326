"""Whether a run is the one that a checkpoint is of: what both were configured with, compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pirl_plugin.checkpoints.host_checkpoint import PLUGIN_SECTION
from pirl_plugin.checkpoints.initial_weights import WEIGHTS

if TYPE_CHECKING:
    from vissl.config import AttrDict

_KEYS = ("MODEL.TRUNK", "MODEL.HEAD.PARAMS", "LOSS.name", "OPTIMIZER.name")
_TRANSFORMS = "DATA.TRAIN.TRANSFORMS"
_SHOWN = 120  # characters of a value


def resume_settings(config: AttrDict) -> dict[str, str]:
    """What a run must have in common with the checkpoint that it goes on from.

    Args:
        config: the host's configuration.

    Returns:
        Dotted key to value, as JSON: of trunk, heads, loss, optimiser and the transforms' names.
    """
    if hasattr(config, "to_dict"):  # the host's: a plain copy
        config = config.to_dict()
    found: dict[str, str] = {}
    for key in _KEYS:
        for name, value in _leaves(key, _at(config, key)):
            if name not in WEIGHTS:  # compared by content
                found[name] = json.dumps(value, sort_keys=True, default=str)
    names = [transform.get("name") for transform in _at(config, _TRANSFORMS) or []]
    found[_TRANSFORMS] = json.dumps(names)
    return found


def describe_other_run(
    config: AttrDict, content: Mapping[str, Any], path: str, ended: bool = False
) -> str | None:
    """What makes a configuration that of another run than a checkpoint's.

    Args:
        config: the host's configuration.
        content: of the checkpoint.
        path: what the sentence calls the checkpoint.
        ended: whether the run has ended with it, so that no epoch need be left.

    Returns:
        One sentence with the first key that differs, found and expected; None where none does.
    """
    before = (content.get(PLUGIN_SECTION) or {}).get("settings") or {}
    now = resume_settings(config)
    different = [key for key in now if key in before and now[key] != before[key]]
    again = (
        f"give the configuration of the run in {path}, or another config.CHECKPOINT.DIR to start a "
        f"new one"
    )
    if different:
        first = different[0]
        more = f" ({len(different) - 1} more keys differ)" if different[1:] else ""
        return (
            f"config.{first} = {_short(now[first])}: expected {_short(before[first])}, as in "
            f"{path}{more}; {again}"
        )
    done, total = int(content["train_phase_idx"]) + 1, epochs(config)
    if done >= total and not ended:
        return (
            f"config.OPTIMIZER.num_epochs = {total}: expected more than the {done} epochs that "
            f"{path} has done; {again}"
        )
    return None


def epochs(config: AttrDict) -> int:
    """Training phases of a run, which are its epochs."""
    return int(config["OPTIMIZER"]["num_epochs"]) * int(
        config["DATA"]["TRAIN"].get("TRAIN_PHASES_PER_EPOCH", 1)
    )


def _at(config: Mapping[str, Any], key: str) -> Any:
    for part in key.split("."):
        config = config[part]
    return config


def _leaves(name: str, value: object) -> list[tuple[str, object]]:
    if not isinstance(value, Mapping):
        return [(name, value)]
    return [leaf for key, part in value.items() for leaf in _leaves(f"{name}.{key}", part)]


def _short(value: str) -> str:
    return value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…"
