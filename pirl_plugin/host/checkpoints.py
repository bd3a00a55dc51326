"""Refuse checkpoints that are not there, or whose trunk is not the configuration's."""

from __future__ import annotations

import functools
import os
import re
from typing import Any

from pirl_plugin.host.mends import mended


def refuse_misfits(module: Any) -> None:
    """Broke (never worked): weights that fit nothing were skipped with a log line each.

    The host went on from random initialisation, or from a part of the weights. Heads are not
    compared, nor what ``MODEL.WEIGHTS_INIT.SKIP_LAYERS`` names.
    """
    original = module.init_model_from_consolidated_weights

    @functools.wraps(original)
    def init_model_from_consolidated_weights(
        config: Any,
        model: Any,
        state_dict: Any,
        state_dict_key_name: Any,
        skip_layers: list[str],
        replace_prefix: str | None = None,
        append_prefix: str | None = None,
        **more: Any,
    ) -> Any:
        from pirl_plugin.models.weights import MisfitError, describe_misfit

        names = (state_dict_key_name, replace_prefix, append_prefix)
        found = _renamed(module, config, state_dict, *names)
        misfit = describe_misfit(_trunk_of(model.state_dict(), skip_layers), _trunk_of(found, []))
        if misfit is not None:
            raise MisfitError(
                f"{config.MODEL.WEIGHTS_INIT.PARAMS_FILE} does not fit the trunk "
                f"'{config.MODEL.TRUNK.NAME}': {misfit}. Give config.MODEL.TRUNK the values of the "
                f"run that made the checkpoint, or name what may stay at random in "
                f"config.MODEL.WEIGHTS_INIT.SKIP_LAYERS"
            )
        return original(config, model, state_dict, names[0], skip_layers, *names[1:], **more)

    module.init_model_from_consolidated_weights = init_model_from_consolidated_weights
    mended("checkpoints that do not fit")


def check_checkpoint(config: Any) -> None:
    """Refuse a checkpoint that does not exist, before anything is started.

    Raises:
        SystemExit: what was named, and how to mend it.
    """
    weights = {"config.MODEL.WEIGHTS_INIT.PARAMS_FILE": config.MODEL.WEIGHTS_INIT.PARAMS_FILE}
    if config.MODEL.TRUNK.NAME == "pirl_ensemble":
        for i, path in enumerate(config.MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES):
            weights[f"config.MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES[{i}]"] = path
    for key, path in weights.items():
        if path and not os.path.isfile(path):
            raise SystemExit(
                f"pirl_plugin: {key} is '{path}', which is not a file that exists: name the "
                f"checkpoint of a run, or '' to start from random initialisation"
            )


def say_misfit(error: Exception) -> None:
    """End in one sentence a run that failed for a misfit, in this process or in one it spawned.

    Raises:
        SystemExit: where it is one.
    """
    found = re.search(r"MisfitError: (.+)", f"{type(error).__name__}: {error}")
    if found is not None:
        raise SystemExit(f"pirl_plugin: {found[1]}") from None


def _trunk_of(state: Any, skipped: list[str]) -> dict[str, Any]:
    return {
        name: value
        for name, value in state.items()
        if name.startswith("trunk.") and not any(part in name for part in skipped)
    }


def _renamed(
    module: Any, config: Any, state: Any, key: Any, removed: str | None, added: str | None
) -> Any:
    """The weights under the names of the model's own, as the host is about to rename them."""
    from pirl_plugin.models.weights import MisfitError

    for part in key if isinstance(key, list) else [key] if key else []:
        if part not in state:
            raise MisfitError(
                f"{config.MODEL.WEIGHTS_INIT.PARAMS_FILE} has no '{part}' (found "
                f"{', '.join(map(str, list(state)[:3]))}, …): set "
                f"config.MODEL.WEIGHTS_INIT.STATE_DICT_KEY_NAME to where its weights are"
            )
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
