"""Check a composed configuration that uses parts of this plugin; leave all others as they are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pirl_plugin.images.names import SOURCES, VIEWS
from pirl_plugin.utils.hydra_overrides import in_quotes
from pirl_plugin.vissl.checks.keys import check_values, find
from pirl_plugin.vissl.checks.names import nearest
from pirl_plugin.vissl.checks.overrides import config_names
from pirl_plugin.vissl.checks.parts import check_parts
from pirl_plugin.vissl.checks.refusal import refuse, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from omegaconf import DictConfig
    from vissl.config import AttrDict

_LISTS = (
    "config.MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES",
    *(
        f"config.DATA.{split}.{kind}_{what}"
        for split in ("TRAIN", "TEST")
        for kind in ("DATA", "LABEL")
        for what in ("PATHS", "SOURCES")
    ),
)


def check_configuration(composed: DictConfig) -> bool:
    """Check all that the values alone tell, before anything is written or started.

    Lists of one may be given without their brackets: ``config.DATA.TRAIN.DATA_PATHS=photos``.

    Args:
        composed: OmegaConf's, whole: ``config``, ``engine_name``, ``node_id``.

    Returns:
        Whether it uses parts of this plugin; others are not looked at.

    Raises:
        SystemExit: the first mistake, in one sentence.
    """
    from omegaconf import OmegaConf

    whole: Any = OmegaConf.to_container(composed)
    if not uses_our_parts(whole.get("config")):
        return False
    for name in (str(name) for name in whole):  # what Hydra takes for a key is no group of configs
        if "/" in name:
            asked = f"{name.removeprefix('config/')}/{whole[name]}"
            refuse(
                f"+{name}={shown(whole[name])}: expected the name of an overlay; "
                f"{nearest(asked, config_names())}"
            )
    for key in _LISTS:
        if isinstance(value := find(whole, key), str) and value.strip():
            OmegaConf.update(composed, key, [value], merge=False)
    whole = OmegaConf.to_container(composed)
    config = whole["config"]
    check_values(config)
    _check_sources(config)
    _check_command(whole)
    try:
        check_parts(config)
    except (AttributeError, KeyError, TypeError, ValueError, AssertionError) as error:
        refuse(f"the configuration cannot be read: {type(error).__name__}: {error}", error)
    return True


def inferred(
    convert: Callable[..., tuple[object, AttrDict]],
    composed: DictConfig,
    *args: object,
    **kwargs: object,
) -> tuple[object, AttrDict]:
    """What the host's ``convert`` makes of a configuration of ours, whose schedule is checked.

    Raises:
        SystemExit: the host cannot infer what it needs.
    """
    try:
        arguments, config = convert(composed, *args, **kwargs)
        schedule = config.OPTIMIZER.param_schedulers.lr
    except OSError as error:
        refuse(f"config.CHECKPOINT.DIR cannot be written to: {error}; name another folder", error)
    except Exception as error:  # whatever the host's inference raises
        refuse(f"the host cannot read the configuration: {_said(error)}", error)
    try:
        from classy_vision.optim.param_scheduler import build_param_scheduler

        rate = build_param_scheduler({**schedule, "num_epochs": config.OPTIMIZER.num_epochs})
        rate(0.0)
    except Exception as error:  # whatever the host's schedules raise
        refuse(
            f"config.OPTIMIZER.param_schedulers.lr = {shown(dict(schedule))}: expected a schedule "
            f"of {config.OPTIMIZER.num_epochs} epochs; {_said(error)}",
            error,
        )
    return arguments, config


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().rstrip(":.")


def uses_our_parts(config: object) -> bool:
    """Whether the configuration names a part of this plugin."""
    if find(config, "LOSS.name") == "pirl_loss" or find(config, "HOOKS.PIRL_INPUT") is not None:
        return True
    names = [find(config, "MODEL.TRUNK.NAME")]
    for split in ("TRAIN", "TEST"):
        sources = find(config, f"DATA.{split}.DATA_SOURCES")
        names += sources if isinstance(sources, list) else [sources]
        transforms = find(config, f"DATA.{split}.TRANSFORMS")
        for entry in transforms if isinstance(transforms, list) else []:
            names.append(entry.get("name") if isinstance(entry, dict) else None)
    return any(isinstance(n, str) and (n.startswith("pirl_") or n in VIEWS) for n in names)


def _check_sources(config: dict[str, Any]) -> None:
    for split in ("TRAIN", "TEST"):
        data = config["DATA"][split]
        sources, paths = data["DATA_SOURCES"], data["DATA_PATHS"]
        if len(sources) > 1 and any(source in SOURCES for source in sources):
            refuse(
                f"config.DATA.{split}.DATA_SOURCES = {shown(sources)}: expected one, as the rows "
                f"of a memory bank are of one data set; name all images in one list, with "
                f"+config/pirl/datasets=filelist, or link their folders into one"
            )
        if paths and len(paths) != len(sources):
            key, whole = f"config.DATA.{split}.DATA_PATHS", ",".join(map(str, paths))
            if len(paths) > 1 and os.path.exists(whole):
                refuse(
                    f"{key} = {shown(paths)}: expected one path, and commas separate several; "
                    f"write {in_quotes(key, [whole])}"
                )
            refuse(
                f"config.DATA.{split}.DATA_PATHS = {shown(paths)}: expected {len(sources)}, one "
                f"path for each of config.DATA.{split}.DATA_SOURCES = {shown(sources)}; name one "
                f"folder, or one list of all images, with +config/pirl/datasets=filelist"
            )
        names = data.get("DATASET_NAMES", [])
        if sources and len(names) != len(sources):
            refuse(
                f"config.DATA.{split}.DATASET_NAMES = {shown(names)}: expected {len(sources)}, one "
                f"name for each of config.DATA.{split}.DATA_SOURCES = {shown(sources)}; set as many"
            )


def _check_command(whole: dict[str, Any]) -> None:
    from vissl.engines.engine_registry import _ENGINE_REGISTRY

    engine, node = whole.get("engine_name"), whole.get("node_id")
    if _ENGINE_REGISTRY and engine not in _ENGINE_REGISTRY:
        refuse(
            f"engine_name = {shown(engine)}: expected one of {', '.join(_ENGINE_REGISTRY)}; set "
            f"engine_name=train"
        )
    nodes = whole["config"]["DISTRIBUTED"]["NUM_NODES"]
    if type(node) is not int or not 0 <= node < nodes:
        refuse(
            f"node_id = {shown(node)}: expected a whole number from 0 to {nodes - 1}, below "
            f"config.DISTRIBUTED.NUM_NODES = {nodes}; set node_id=0"
        )
