"""What each config composes to, beside the host's defaults: recorded, so that a change is seen.

python -m tests.helpers.composed    # record again, after a change that is meant
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from pirl_plugin.utils.config_root import config_root
from pirl_plugin.vissl.import_hook import finder

finder.install()

import torch  # noqa: E402
import vissl.config  # noqa: E402
import yaml  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from vissl.utils.hydra_config import compose_hydra_configuration  # noqa: E402

RECORD = Path(__file__).parents[1] / "configs" / "composed.json"
OVER = {  # group of overlays -> the config that they are composed over
    "linear": "benchmark/pirl/linear_imagenet1k",
    "finetune": "benchmark/pirl/semi_supervised_imagenet1k_1percent",
    "semi_supervised": "benchmark/pirl/semi_supervised_imagenet1k_1percent",
}


def cases() -> dict[str, list[str]]:
    """Name -> overrides, of every complete config and every overlay."""
    root = config_root() / "config"
    found = {}
    for path in sorted(root.rglob("*.yaml")):
        name = path.relative_to(root).with_suffix("").as_posix()
        if name.startswith("pirl/base/"):
            continue
        if not name.startswith("pirl/"):
            found[name] = [f"config={name}"]
            continue
        _, group, option = name.split("/")
        over = OVER.get(group, "pretrain/pirl/jigsaw_8node")
        found[name] = [f"config={over}", f"+config/pirl/{group}={option}"]
    return found


def record() -> dict[str, dict[str, Any]]:
    """Of each case, key -> value where it differs from the host's defaults; of an overlay, from
    the config that it is composed over. The host has inferred nothing yet. As on two cores.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        return _record()
    finally:
        torch.set_num_threads(threads)


def _record() -> dict[str, dict[str, Any]]:
    found = {name: _composed(tuple(overrides)) for name, overrides in cases().items()}
    return {
        name: _differences(values, _composed(tuple(cases()[name][:-1])))
        for name, values in found.items()
    }


def _differences(values: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if base.get(key, ...) != value}


@functools.cache
def _composed(overrides: tuple[str, ...]) -> dict[str, Any]:
    if not overrides:
        return defaults()
    return _leaves(OmegaConf.to_container(compose_hydra_configuration(list(overrides)))["config"])


def _leaves(tree: Any, path: str = "") -> dict[str, Any]:
    if isinstance(tree, dict) and tree:
        return {
            key: value
            for name, below in tree.items()
            for key, value in _leaves(below, f"{path}.{name}" if path else str(name)).items()
        }
    return {path: tree}


def defaults() -> dict[str, Any]:
    """Key -> value of the host's defaults."""
    text = Path(vissl.config.__file__).with_name("defaults.yaml").read_text()
    return _leaves(yaml.safe_load(text)["config"])


def lines(found: dict[str, dict[str, Any]]) -> str:
    """JSON with a line for each key."""
    blocks = []
    for name, values in found.items():
        entries = (f"  {json.dumps(k)}: {json.dumps(values[k])}" for k in sorted(values))
        blocks.append(f" {json.dumps(name)}: {{\n" + ",\n".join(entries) + "\n }")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


if __name__ == "__main__":
    RECORD.write_text(lines(record()))
