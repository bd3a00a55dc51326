"""Load a run's initial weights: safely, from any layout, and only if they fit."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.read import read_checkpoint
from pirl_plugin.checkpoints.tensors import COUNTER, compare
from pirl_plugin.checkpoints.write import vissl_checkpoint
from pirl_plugin.system.failures import Refused

if TYPE_CHECKING:
    from torch import Tensor
    from vissl.config import AttrDict
    from vissl.models.base_ssl_model import BaseSSLMultiInputOutputModel


def load_initial_weights(
    config: AttrDict, model: BaseSSLMultiInputOutputModel, **options: Any
) -> BaseSSLMultiInputOutputModel:
    """Load ``MODEL.WEIGHTS_INIT.PARAMS_FILE``, in any format that export reads, into a model.

    VISSL only logs weights that do not fit, and continues from random weights. Here, the trunk must
    fit. Trunks in other layouts, such as torchvision's state dictionaries, are found too.

    Args:
        config: the run's complete configuration.
        model: the model to load the weights into.
        **options: options for VISSL's method: ``strict``, in git main.

    Raises:
        Refused: the file has no trunk, or its trunk does not fit.
    """
    initial = config.MODEL.WEIGHTS_INIT
    logging.info(f"Initializing model from: {initial.PARAMS_FILE}")
    content = read_checkpoint(Path(initial.PARAMS_FILE))
    # Prefixes from the user describe the file's layout.
    if not initial.get("REMOVE_PREFIX") and not initial.get("APPEND_PREFIX"):
        content = _checked(config, model, content, initial.get("SKIP_LAYERS", []))
        initial.STATE_DICT_KEY_NAME = "classy_state_dict"
    model.init_model_from_weights_params_file(config, content, **options)
    return model


def _checked(
    config: AttrDict,
    model: BaseSSLMultiInputOutputModel,
    content: Mapping[str, Any],
    skip_layers: list[str],
) -> Mapping[str, Any]:
    """Return a checkpoint's content in VISSL's layout, if the trunk fits the model's.

    Args:
        config: the run's complete configuration.
        model: the model to load the weights into.
        content: the file's content, in any layout.
        skip_layers: name parts that mark weights not to load.

    Raises:
        Refused: there is no trunk, or it does not fit.
    """
    path = config.MODEL.WEIGHTS_INIT.PARAMS_FILE
    trunk_of_file = vissl_state(content, path)
    trunk_of_model = {
        name.removeprefix("trunk.").removeprefix("base_model."): value
        for name, value in model.state_dict().items()
        if name.startswith("trunk.") and not any(part in name for part in skip_layers)
    }
    mismatch = compare_with_model(trunk_of_model, trunk_of_file)
    if mismatch:
        raise Refused(
            f"{path} does not fit the trunk '{config.MODEL.TRUNK.NAME}': {mismatch}. Set "
            f"config.MODEL.TRUNK as in the run that wrote the file."
        )
    # A VISSL checkpoint stays as it is, with its heads.
    if _trunk_section(content).keys() == trunk_of_file.keys():
        return content
    logging.info(f"{path}: the layout is not VISSL's; found the trunk by tensor names")
    return vissl_checkpoint(trunk_of_file)


def vissl_state(content: Mapping[str, object], path: str | Path) -> dict[str, Tensor]:
    """Return the trunk's tensors in a file, under VISSL's names.

    In VISSL's layout, any trunk is found. In other layouts, such as a torchvision state dictionary,
    only ResNets and recorded timm networks are found.

    Args:
        content: the file's content.
        path: the file's path.

    Raises:
        ValueError: there is no trunk, or several, or an incomplete one.
    """
    section = _trunk_section(content)
    if not section:
        return load_trunk(path).state_dict()
    # In a benchmark's checkpoint, the trunk is inside VISSL's feature extractor.
    return {full.removeprefix("base_model."): tensor for full, tensor in section.items()}


def _trunk_section(content: Mapping[str, object]) -> Mapping[str, Tensor]:
    """Return the section for the trunk in VISSL's layout; empty in other layouts."""
    section: Any = content
    for key in ("classy_state_dict", "base_model", "model", "trunk"):
        section = section.get(key) if isinstance(section, Mapping) else None
    return section if isinstance(section, Mapping) else {}


def compare_with_model(model: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> str:
    """Compare weights with the trunk that will load them, as :func:`compare` does.

    Tensors for parts that the trunk lacks, such as a classifier ``fc``, are ignored. Extra blocks
    within a part count: otherwise a ResNet-34 would load into a ResNet-18. Position embeddings may
    have another size, because VISSL interpolates them.

    Args:
        model: the trunk's ``state_dict()``, or the part that will be loaded.
        tensors: the weights, under the same names.
    """
    parts = {_part(name) for name in model} - {None}
    relevant = {
        name: tensor
        for name, tensor in tensors.items()
        if name in model or (_part(name) in parts and not name.endswith(COUNTER))
    }
    expected = dict(model)
    for name in expected:
        if "pos_embedding" in name and name in tensors:
            expected[name] = tensors[name]
    return compare(expected, relevant)


def _part(name: str) -> str | None:
    """Return the trunk part that a tensor belongs to: ``….layer1`` for ``….layer1.0.bn1.bias``."""
    match = re.match(r".*(?:_feature_blocks|\bnet)\.[^.]+", name)
    return match[0] if match else None
