"""Register our parts in the host's registries."""

from __future__ import annotations

import importlib
from pkgutil import resolve_name
from typing import Any

from pirl_plugin.vissl.import_hook.table import PARTS


def register_parts(module: Any) -> None:
    """Register the table's parts of ``module``. A second registration changes nothing."""
    registry, parts = PARTS[module.__name__]
    classes = {name: resolve_name(path) for name, path in parts.items()}
    resolve_name(registry).update(classes)


def give_whole_sample_to_our_transforms(module: Any) -> None:
    """Make the host pass the row and validity of an image to our transforms, besides pixels."""
    types = importlib.import_module("vissl.data.ssl_transforms.ssl_transforms_wrapper")
    names = types.DEFAULT_TRANSFORM_TYPES["TRANSFORMS_WITH_OVERWRITE_ENTIRE_BATCH"]
    _, transforms = PARTS[module.__name__]
    names.extend(name for name in transforms if name not in names)


def let_data_limit_apply_to_our_sources(module: Any) -> None:
    """Add our sources to the host's set of sources that support ``DATA_LIMIT``."""
    _, sources = PARTS[module.__name__]
    module.DATA_SOURCES_WITH_SUBSET_SUPPORT.update(sources)


def register_our_task(module: Any) -> None:
    """Import our task, which registers itself, unless its module is the one that imports this."""
    importlib.import_module("pirl_plugin.vissl.run.pirl_task")
