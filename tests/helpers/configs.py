"""Compose configurations as VISSL's script does."""

from __future__ import annotations

import copy
import functools
from typing import Any

from pirl_plugin.vissl.host_config import config_root
from pirl_plugin.vissl.import_hook import finder

finder.install()

from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict  # noqa: E402

OVER = {  # overlay group -> base config
    "linear": "benchmark/pirl/linear_imagenet1k",
    "finetune": "benchmark/pirl/semi_supervised_imagenet1k_1percent",
    "semi_supervised": "benchmark/pirl/semi_supervised_imagenet1k_1percent",
}


def compose(*overrides: str) -> Any:
    """Return VISSL's configuration for overrides, such as ``config=pretrain/pirl/jigsaw_8node``."""
    return copy.deepcopy(_composed(overrides))


@functools.cache
def _composed(overrides: tuple[str, ...]) -> Any:
    _, config = convert_to_attrdict(compose_hydra_configuration(list(overrides)), dump_config=False)
    return config


def cases(kind: str = "") -> dict[str, list[str]]:
    """Map names to overrides, for every complete config and every overlay.

    Args:
        kind: ``pretrain`` or ``benchmark``, to select these configs and their overlays.
    """
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
    return {name: words for name, words in found.items() if words[0].startswith(f"config={kind}")}


def check_compositions(kind: str) -> None:
    """Compose all configs and overlays of one kind; a complete config names its folder."""
    for name, overrides in cases(kind).items():
        config = compose(*overrides)
        assert config.LOSS.name, name
        if name.startswith(kind):
            assert config.CHECKPOINT.DIR == f"runs/{name.rpartition('/')[2]}", name
