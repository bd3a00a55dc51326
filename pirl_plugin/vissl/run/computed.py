"""Values of a configuration that files decide: computed where a run starts, before its record.

In YAML, ``${pirl_at_start:NAME,DEFAULT}`` is such a value. Until the start it is a text, which says
so. A run that continues compares the computed values like all others.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.images.columns import Columns
from pirl_plugin.images.folders import find_images
from pirl_plugin.images.names import DISK_FOLDER
from pirl_plugin.images.sources import open_source
from pirl_plugin.system.comparison import flat
from pirl_plugin.system.failures import Refused
from pirl_plugin.views import IMAGENET_MEAN, IMAGENET_STD
from pirl_plugin.vissl.sections import COMPUTED

if TYPE_CHECKING:
    from omegaconf import DictConfig

_INTERPOLATION = re.compile(r"\$\{pirl_at_start:(\w+)(?:,(\d+))?\}")


def compute(composed: DictConfig) -> dict[str, Any]:
    """Compute the values of a configuration that files decide, and resolve all references.

    Args:
        composed: the whole configuration, with ``config``; changed in place.

    Returns:
        Dotted key → computed value.

    Raises:
        Refused: the trunks of an ensemble have images of different kinds.
    """
    from omegaconf import OmegaConf, open_dict

    values: dict[str, Any] = {}
    keys: dict[str, str] = {}
    unresolved: Any = OmegaConf.to_container(composed.config, resolve=False)
    for key, value in flat(unresolved).items():
        for name, default in _INTERPOLATION.findall(str(value)):
            keys[key] = name
            if name == "half_of_images":
                values[name] = _half_of_images(composed.config, int(default))
            else:
                values[name] = _of_weights(composed.config, name, default)
    with open_dict(composed):
        composed[COMPUTED] = values
        OmegaConf.resolve(composed)  # otherwise the host keeps interpolations as text
        del composed[COMPUTED]
    return {key: values[name] for key, name in keys.items()}


def _half_of_images(config: DictConfig, most: int) -> int:
    """Return half of the number of training images, at most ``most``."""
    data = config.DATA.TRAIN
    try:
        (path,) = data.DATA_PATHS
        (source,) = data.DATA_SOURCES
        if source == DISK_FOLDER:  # more images do not change the result: stop counting
            count = sum(1 for _ in islice(find_images(path), 2 * most))
        else:
            columns = Columns(data.IMAGE_COLUMN, data.LABEL_COLUMN)
            count = len(open_source(path, source, columns=columns))
    except (OSError, ValueError):
        count = 0  # the checks of the run name the mistake
    return min(count // 2, most) or most


def _of_weights(config: DictConfig, name: str, default: str) -> Any:
    """Return ``size``, ``mean`` or ``std`` of the initial weights' images.

    Raises:
        Refused: the trunks of an ensemble have different values.
    """
    from pirl_plugin.checkpoints.load import read_preprocessing

    files = [config.MODEL.WEIGHTS_INIT.PARAMS_FILE]
    if config.MODEL.TRUNK.NAME == "pirl_ensemble":
        files = config.MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES
    values = set()
    for file in files:
        is_file = bool(file) and os.path.isfile(file)  # not "", a placeholder or an address
        preprocessing = read_preprocessing(Path(file)) if is_file else None
        if preprocessing is not None:
            values.add(getattr(preprocessing, name))
    if len(values) > 1:
        raise Refused(
            f"config.MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES = {list(files)}: expected trunks of "
            f"images with one {name}, found {sorted(values)}; measure each trunk by itself"
        )
    # Random weights, or a file that does not say it.
    value = values.pop() if values else {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}.get(name)
    if name == "size":
        return int(default) if value is None else value
    return list(value or ())
