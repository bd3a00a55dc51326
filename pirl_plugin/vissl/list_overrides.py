"""Overrides of an entry of a list, which OmegaConf cannot set through an interpolation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from omegaconf import DictConfig

_LISTS = r"config\.(?:DATA\.TRAIN\.TRANSFORMS|MODEL\.HEAD\.PARAMS)"
_ENTRY = re.compile(rf"^([+~]*)({_LISTS})(?:\.(\d+)|\[(\d+)\])\.")


def to_sections(overrides: list[str], compose: Callable[[list[str]], DictConfig]) -> list[str]:
    """Overrides of an entry of a list, as those of the section that the entry refers to.

    ``TRANSFORMS.0.KEY=…`` becomes ``VIEWS.KEY=…``, and ``HEAD.PARAMS.0.1.KEY=…`` becomes
    ``HEAD.G.1.KEY=…``; the first of each is how earlier versions named it.
    """
    from omegaconf import OmegaConf

    others = [override for override in overrides if not _ENTRY.match(override)]
    if len(others) == len(overrides):
        return overrides
    composed = compose(others)

    def renamed(override: str) -> str:
        found = _ENTRY.match(override)
        if found is None:
            return override
        entries, index = OmegaConf.select(composed, found[2]), int(found[3] or found[4])
        if not entries or index >= len(entries) or not OmegaConf.is_interpolation(entries, index):
            return override
        section = entries._get_node(index)._value().strip("${}")
        return f"{found[1]}{section}.{override[found.end() :]}"

    return [renamed(override) for override in overrides]
