"""Put the parts of :data:`pirl_plugin.vissl.import_hook.table.PARTS` into the host's registries."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pirl_plugin.vissl.import_hook.table import PARTS

if TYPE_CHECKING:
    from types import ModuleType

    from pirl_plugin.vissl.host_module import HostModule


class NameTakenError(RuntimeError):
    """A registry of the host has a name of ours already, for something that is not ours."""


def register_parts(module: ModuleType) -> None:
    """Register what the table lists for ``module``. Registering twice changes nothing.

    Raises:
        NameTakenError: a name is taken by someone else.
    """
    where, parts = PARTS[module.__name__]
    registry = load(where)
    for name, part in parts.items():
        ours = load(part)
        theirs = registry.setdefault(name, ours)
        if theirs is not ours:
            raise NameTakenError(
                f"pirl_plugin cannot register '{name}' in {where}: the name belongs to "
                f"{theirs.__module__}.{theirs.__qualname__} already; rename that one, or set "
                f"PIRL_PLUGIN_AUTOLOAD=0 to leave this plugin out"
            )


def load(target: str) -> Any:
    """The object that ``package.module:attribute`` names."""
    where, _, what = target.partition(":")
    return getattr(importlib.import_module(where), what)


def give_whole_sample_to_our_transforms(module: ModuleType) -> None:
    """Have the host pass our transforms the whole sample: the row and validity, not pixels alone.

    The row keys the random numbers of an image's views, and an invalid image must be known as such.
    """
    types = importlib.import_module("vissl.data.ssl_transforms.ssl_transforms_wrapper")
    whole = types.DEFAULT_TRANSFORM_TYPES["TRANSFORMS_WITH_OVERWRITE_ENTIRE_BATCH"]
    whole.extend(name for name in PARTS[module.__name__][1] if name not in whole)


def let_data_limit_apply_to_our_sources(module: HostModule) -> None:
    """``DATA_LIMIT`` works only for the sources in this set of the host."""
    module.DATA_SOURCES_WITH_SUBSET_SUPPORT.update(PARTS[module.__name__][1])
