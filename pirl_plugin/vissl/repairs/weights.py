"""Initial weights of the host: read files safely, in any layout, and compare them."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.system.failures import Refused
from pirl_plugin.system.host_config import is_ours

if TYPE_CHECKING:
    from vissl.config import AttrDict
    from vissl.models.base_ssl_model import BaseSSLMultiInputOutputModel

    from pirl_plugin.vissl.task import Task


def refuse_mismatches(module: Any) -> None:
    """Never worked: the host skipped each weight that did not fit, with only a log line.

    Then it continued from random weights, or from a part of the weights. Heads and the layers of
    ``MODEL.WEIGHTS_INIT.SKIP_LAYERS`` are not compared. The trunk is also found in files
    of other layouts, such as a state dictionary of torchvision.
    """
    original = module.init_model_from_consolidated_weights

    @functools.wraps(original)
    def init_model_from_consolidated_weights(
        config: AttrDict,
        model: BaseSSLMultiInputOutputModel,
        state_dict: Mapping[str, Any],
        state_dict_key_name: str | list[str],
        skip_layers: list[str],
        replace_prefix: str | None = None,
        append_prefix: str | None = None,
        **options: object,  # strict, in git main
    ) -> object:
        prefixes = (replace_prefix, append_prefix)
        if is_ours(config) and not any(prefixes):  # with prefixes, the user describes the layout
            state_dict = _checked(config, model, state_dict, skip_layers)
            state_dict_key_name = "classy_state_dict"
        return original(
            config, model, state_dict, state_dict_key_name, skip_layers, *prefixes, **options
        )

    module.init_model_from_consolidated_weights = init_model_from_consolidated_weights


def read_more_formats(module: Any) -> None:
    """Feature: ``PARAMS_FILE`` takes any file that the export reads, without running its code."""
    task = module.SelfSupervisionTask
    original = task._restore_model_weights

    @functools.wraps(original)
    def _restore_model_weights(
        self: Task, model: BaseSSLMultiInputOutputModel, *args: Any, **kwargs: Any
    ) -> BaseSSLMultiInputOutputModel:
        path = self.config.MODEL.WEIGHTS_INIT.PARAMS_FILE
        sharded = "fsdp" in self.config.MODEL.TRUNK.NAME
        if not is_ours(self.config) or "://" in path or sharded:
            return original(self, model, *args, **kwargs)
        from pirl_plugin.checkpoints.read import read_checkpoint

        logging.info(f"Initializing model from: {path}")
        content = read_checkpoint(Path(path))
        model.init_model_from_weights_params_file(self.config, content, *args, **kwargs)
        return model

    task._restore_model_weights = _restore_model_weights


def _checked(
    config: AttrDict,
    model: BaseSSLMultiInputOutputModel,
    content: Mapping[str, Any],
    skip_layers: list[str],
) -> Mapping[str, Any]:
    """Return the content of a checkpoint in VISSL's layout, if its trunk fits the model's.

    Args:
        config: the run's whole configuration.
        model: the model that takes the weights.
        content: content of the file, in any layout.
        skip_layers: parts of the names of weights that are not loaded.

    Raises:
        Refused: it holds no trunk, or its trunk does not fit.
    """
    from pirl_plugin.checkpoints.compare import compare_with_model
    from pirl_plugin.checkpoints.load import vissl_state
    from pirl_plugin.checkpoints.write import vissl_checkpoint

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
            f"{path} does not fit the trunk '{config.MODEL.TRUNK.NAME}': {mismatch}; give "
            f"config.MODEL.TRUNK the values of the run that wrote the file"
        )
    # A checkpoint of VISSL stays as it is, with its heads.
    model_of_file = content.get("classy_state_dict", {}).get("base_model", {}).get("model", {})
    if model_of_file.get("trunk", {}).keys() == trunk_of_file.keys():
        return content
    logging.info(f"{path}: the trunk was found by its names, because the layout is not VISSL's")
    return vissl_checkpoint(trunk_of_file)
