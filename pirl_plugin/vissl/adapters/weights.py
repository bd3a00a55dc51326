"""Load a run's initial weights: safely, from any layout, and only if they fit."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.read import read_checkpoint
from pirl_plugin.checkpoints.tensors import compare, select_prefix
from pirl_plugin.checkpoints.write import vissl_checkpoint, vissl_state
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
    trunk_of_file = trunk_state(content, path)
    trunk_of_model = {
        name.removeprefix("base_model."): value
        for name, value in select_prefix(model.state_dict(), "trunk.").items()
    }
    other_parts = [*skip_layers, "pos_embedding"]  # VISSL interpolates these

    def loaded(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: tensor
            for name, tensor in state.items()
            if not any(part in name for part in other_parts)
        }

    if mismatch := compare(loaded(trunk_of_model), loaded(trunk_of_file)):
        raise Refused(
            f"{path} does not fit the trunk '{config.MODEL.TRUNK.NAME}': {mismatch}. Set "
            f"config.MODEL.TRUNK as in the run that wrote the file."
        )
    # A VISSL checkpoint stays as it is, with its heads.
    if _trunk_section(content).keys() == trunk_of_file.keys():
        return content
    logging.info(f"{path}: the layout is not VISSL's; found the trunk by tensor names")
    return vissl_checkpoint(trunk_of_file)


def trunk_state(content: Mapping[str, object], path: str | Path) -> dict[str, Tensor]:
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
        return vissl_state(load_trunk(path))
    # In a benchmark's checkpoint, the trunk is inside VISSL's feature extractor.
    return {full.removeprefix("base_model."): tensor for full, tensor in section.items()}


def _trunk_section(content: Mapping[str, object]) -> Mapping[str, Tensor]:
    """Return the section for the trunk in VISSL's layout; empty in other layouts."""
    section: Any = content
    for key in ("classy_state_dict", "base_model", "model", "trunk"):
        section = section.get(key) if isinstance(section, Mapping) else None
    return section if isinstance(section, Mapping) else {}
