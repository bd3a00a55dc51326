"""Checkpoints that the host starts from: read safely, found whatever their layout, and compared.

Two steps of :mod:`pirl_plugin.vissl.import_hook.table`.
"""

from __future__ import annotations

import functools
import logging
import re
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

    from pirl_plugin.checkpoints.compare import Mismatch
    from pirl_plugin.vissl.host_module import HostModule

    # Where the weights are, the prefix to remove from their names and the one to add.
    Names = tuple[str | list[str] | None, str | None, str | None]

_OURS_ONLY = (".pkl", ".safetensors")  # files that the host's own reader does not know
# Errors whose text is one sentence for the user; their tracebacks add nothing.
_SENTENCES = "MismatchError|DiskFullError|NonFiniteStateError|DamagedError"


def refuse_mismatches(module: HostModule) -> None:
    """Never worked: weights that fit nothing were skipped with a log line each.

    The host went on from random initialisation, or from a part of the weights. Heads are not
    compared, nor what ``MODEL.WEIGHTS_INIT.SKIP_LAYERS`` names. Where the file has another layout,
    such as a plain state dictionary of torchvision, its trunk is looked for. Approaches of VISSL
    start as they do without this plugin.
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
    """Feature: ``PARAMS_FILE`` takes safetensors, pickles of arrays, and files that are trusted.

    ``MODEL.WEIGHTS_INIT.TRUST_PICKLE: True`` lets a file run code where torch's safe loading
    refuses it. All other files are left to the host's reader, which loads safely.
    """
    task = module.SelfSupervisionTask
    original = task._restore_model_weights

    @functools.wraps(original)
    def _restore_model_weights(
        self: SelfSupervisionTask, model: BaseSSLMultiInputOutputModel
    ) -> BaseSSLMultiInputOutputModel:
        weights_init = self.config.MODEL.WEIGHTS_INIT
        path, trusted = weights_init.PARAMS_FILE, bool(weights_init.get("TRUST_PICKLE"))
        if not trusted and _host_reads(path):
            return original(self, model)
        from pirl_plugin.checkpoints.read import read_checkpoint

        logging.info(f"Initializing model from: {path}")
        model.init_model_from_weights_params_file(self.config, read_checkpoint(Path(path), trusted))
        return model

    task._restore_model_weights = _restore_model_weights


def _host_reads(path: str) -> bool:
    """Whether the host's ``torch.load`` takes a file: not numpy's arrays, nor other formats."""
    from torch.serialization import get_unsafe_globals_in_checkpoint

    if path.endswith(_OURS_ONLY):
        return False
    try:
        return not get_unsafe_globals_in_checkpoint(path)
    except Exception:  # torch's older format, which this function does not take, and the host does
        return True


def report_failure(error: BaseException) -> None:
    """End in one sentence a run that failed for a checkpoint, in this process or in one it spawned.

    Raises:
        SystemExit: where it did.
    """
    found = re.search(rf"(?:{_SENTENCES}): (.+)", f"{type(error).__name__}: {error}")
    if found is not None:
        raise SystemExit(f"pirl_plugin: {found[1]}") from None


def fitting(
    module: HostModule,
    config: AttrDict,
    model: BaseSSLMultiInputOutputModel,
    state: Mapping[str, Any],
    skipped: list[str],
    names: Names,
) -> tuple[Mapping[str, Any], Names]:
    """The checkpoint and the names that the host is to look under, once they fit the model's trunk.

    Raises:
        MismatchError: they do not fit, as they are or with the trunk looked for.
    """
    from pirl_plugin.checkpoints.compare import MismatchError, compare_with_model
    from pirl_plugin.checkpoints.vissl_layout import trunk_of_checkpoint, vissl_checkpoint

    path, wanted = config.MODEL.WEIGHTS_INIT.PARAMS_FILE, _trunk_of(model.state_dict(), skipped)
    whole = state
    renamed = _renamed(module, config, state, *names)
    mismatch = None
    if renamed is not None:
        mismatch = compare_with_model(wanted, _trunk_of(renamed, []))
        if not mismatch:
            return state, names
        if len(mismatch.missing) < mismatch.expected:  # some of it is there: another network
            raise MismatchError(_does_not_fit(config, mismatch, whole))
    try:
        state = vissl_checkpoint(trunk_of_checkpoint(state, path))
    except ValueError as error:
        if renamed is None:
            what = (
                f"has no '{names[0]}', and {error}; set "
                f"config.MODEL.WEIGHTS_INIT.STATE_DICT_KEY_NAME to where its weights are"
            )
            raise MismatchError(f"{path} {what}") from error
        assert mismatch is not None  # as ``renamed`` is not
        raise MismatchError(_does_not_fit(config, mismatch, whole)) from error
    logging.info(f"{path}: the trunk was found by its names, for the layout is not VISSL's")
    names = ("classy_state_dict", None, None)
    renamed = _renamed(module, config, state, *names)
    assert renamed is not None  # ``vissl_checkpoint`` makes what the names say
    if mismatch := compare_with_model(wanted, _trunk_of(renamed, [])):
        raise MismatchError(_does_not_fit(config, mismatch, whole))
    return state, names


def _does_not_fit(config: AttrDict, mismatch: Mismatch, given: Mapping[str, Any]) -> str:
    """What differs, which network the checkpoint has, and what gives it to the configuration."""
    from pirl_plugin.checkpoints.networks import network_in, network_of_section

    found, asked = network_in(given), network_of_section(config.MODEL.TRUNK)
    remedy = "give config.MODEL.TRUNK the values of the run that made the checkpoint"
    if found is not None and (asked is None or asked.title != found.title):
        if overrides := found.overrides(_group_of(config)):
            remedy = f"give {' '.join(overrides)}"
        remedy = f"the checkpoint is {found.with_article}; {remedy}"
    elif not mismatch.shapes:
        remedy += ", or name what may stay at random in config.MODEL.WEIGHTS_INIT.SKIP_LAYERS"
    return (
        f"{config.MODEL.WEIGHTS_INIT.PARAMS_FILE} does not fit the trunk "
        f"'{config.MODEL.TRUNK.NAME}': {mismatch.summary()}; {remedy}"
    )


def _group_of(config: AttrDict) -> str:
    """The group of overlays that changes the trunk of a configuration."""
    if config.MODEL.FEATURE_EVAL_SETTINGS.EVAL_MODE_ON:
        return "linear"
    return "finetune" if config.DATA.TRAIN.LABEL_SOURCES else "models"


def _trunk_of(state: Mapping[str, Tensor], skipped: list[str]) -> dict[str, Tensor]:
    return {
        name: value
        for name, value in state.items()
        if name.startswith("trunk.") and not any(part in name for part in skipped)
    }


def _renamed(
    module: HostModule,
    config: AttrDict,
    state: Mapping[str, Any],
    key: str | list[str] | None,
    removed: str | None,
    added: str | None,
) -> Mapping[str, Tensor] | None:
    """The weights under the model's own names, as the host renames them; None without ``key``."""
    for part in key if isinstance(key, list) else [key] if key else []:
        if part not in state:
            return None
        state = state[part]
    if key == "classy_state_dict":
        return module.get_checkpoint_model_state_dict(config, state)
    if removed:
        state = module.replace_module_prefix(state, removed)
    if added:
        state = module.append_module_prefix(state, added)
    if hasattr(module, "adapt_to_feature_extractor_config"):  # git main
        state = module.adapt_to_feature_extractor_config(config, state)
    return state
