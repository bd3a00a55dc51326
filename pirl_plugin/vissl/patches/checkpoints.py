"""Checkpoints that the host starts from: read safely, found whatever their layout, and compared."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.settings import is_ours
from pirl_plugin.vissl.patches.patches import patched

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from vissl.config import AttrDict
    from vissl.models.base_ssl_model import BaseSSLMultiInputOutputModel
    from vissl.trainer.train_task import SelfSupervisionTask

    from pirl_plugin.vissl.host_module import HostModule

    # Where the weights are, the prefix to remove from their names and the one to add.
    Names = tuple[str | list[str] | None, str | None, str | None]


def refuse_mismatches(module: HostModule) -> None:
    """Never worked: weights that fit nothing were skipped with a log line each.

    The host went on from random initialisation, or from a part of the weights. Heads are not
    compared, nor what ``MODEL.WEIGHTS_INIT.SKIP_LAYERS`` names. Where the file has another layout,
    such as a plain state dictionary of torchvision, its trunk is looked for.
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
        **more: object,
    ) -> object:
        names: Names = (state_dict_key_name, replace_prefix, append_prefix)
        if is_ours(config):
            state_dict, names = fitting(module, config, model, state_dict, skip_layers, names)
        return original(config, model, state_dict, names[0], skip_layers, *names[1:], **more)

    module.init_model_from_consolidated_weights = init_model_from_consolidated_weights
    patched("checkpoints that do not fit")


def read_more_formats(module: HostModule) -> None:
    """Feature: ``PARAMS_FILE`` takes all that the export reads, without running code in it.

    ``MODEL.WEIGHTS_INIT.TRUST_PICKLE: True`` lets a file run code where safe loading refuses it.
    """
    task = module.SelfSupervisionTask
    original = task._restore_model_weights

    @functools.wraps(original)
    def _restore_model_weights(
        self: SelfSupervisionTask, model: BaseSSLMultiInputOutputModel, *args: Any, **kwargs: Any
    ) -> BaseSSLMultiInputOutputModel:
        weights = self.config.MODEL.WEIGHTS_INIT
        path = weights.PARAMS_FILE
        sharded = "fsdp" in self.config.MODEL.TRUNK.NAME
        if not is_ours(self.config) or "://" in path or sharded:
            return original(self, model, *args, **kwargs)
        from pirl_plugin.checkpoints.read import read_checkpoint

        logging.info(f"Initializing model from: {path}")
        content = read_checkpoint(Path(path), bool(weights.get("TRUST_PICKLE")))
        model.init_model_from_weights_params_file(self.config, content, *args, **kwargs)
        return model

    task._restore_model_weights = _restore_model_weights


def fitting(
    module: HostModule,
    config: AttrDict,
    model: BaseSSLMultiInputOutputModel,
    state: Mapping[str, Any],
    skipped: list[str],
    names: Names,
) -> tuple[Mapping[str, Any], Names]:
    """Return the checkpoint, and the names that the host is to look under, once they fit.

    Raises:
        ValueError: they do not fit the model's trunk, as they are or with the trunk looked for.
    """
    from pirl_plugin.checkpoints.compare import compare_with_model
    from pirl_plugin.checkpoints.load import trunk_of_checkpoint, vissl_checkpoint

    path = config.MODEL.WEIGHTS_INIT.PARAMS_FILE
    wanted = {
        name: value
        for name, value in model.state_dict().items()
        if name.startswith("trunk.") and not any(part in name for part in skipped)
    }

    def mismatch(of: Mapping[str, Any], names: Names) -> object:
        renamed = _renamed(module, config, of, *names)
        if renamed is None:
            return f"it has no '{names[0]}'"
        return compare_with_model(
            wanted, {n: t for n, t in renamed.items() if n.startswith("trunk.")}
        )

    if not (as_it_is := mismatch(state, names)):
        return state, names
    ours: Names = ("classy_state_dict", None, None)
    try:
        found = vissl_checkpoint(trunk_of_checkpoint(state, path))
    except ValueError as error:
        raise ValueError(f"{path} does not fit config.MODEL.TRUNK: {as_it_is}; {error}") from error
    if differs := mismatch(found, ours):
        raise ValueError(
            f"{path} does not fit the trunk '{config.MODEL.TRUNK.NAME}': {differs}; "
            f"{_network_in(found)}give config.MODEL.TRUNK the values of the run that made it"
        )
    logging.info(f"{path}: the trunk was found by its names, for the layout is not VISSL's")
    return found, ours


def _network_in(checkpoint: Mapping[str, object]) -> str:
    from pirl_plugin.checkpoints.trunk import find_any_trunk

    try:
        return f"it is of {find_any_trunk(checkpoint, 'the checkpoint').title}; "
    except ValueError:  # of another kind
        return ""


def _renamed(
    module: HostModule,
    config: AttrDict,
    state: Mapping[str, Any],
    key: str | list[str] | None,
    removed: str | None,
    added: str | None,
) -> Mapping[str, Tensor] | None:
    """Return the weights by the model's own names, as the host renames them."""
    for part in key if isinstance(key, list) else [key] if key else []:
        if part not in state:
            return None
        state = state[part]
    if key == "classy_state_dict":
        found: Mapping[str, Tensor] = module.get_checkpoint_model_state_dict(config, state)
        return found
    if removed:
        state = module.replace_module_prefix(state, removed)
    if added:
        state = module.append_module_prefix(state, added)
    if hasattr(module, "adapt_to_feature_extractor_config"):  # git main
        state = module.adapt_to_feature_extractor_config(config, state)
    return state
