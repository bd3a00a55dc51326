"""Compose a configuration as the host's script does."""

from __future__ import annotations

import copy
import functools
from typing import Any

from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict


def compose(*overrides: str) -> Any:
    """The host's configuration of some overrides, such as ``config=pretrain/pirl/jigsaw_8node``."""
    return copy.deepcopy(_composed(overrides))


@functools.cache
def _composed(overrides: tuple[str, ...]) -> Any:
    _, config = convert_to_attrdict(compose_hydra_configuration(list(overrides)), dump_config=False)
    return config
