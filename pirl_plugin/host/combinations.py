"""Refuse, before training starts, parts of a configuration that do not belong together."""

from __future__ import annotations

from typing import Any

from pirl_plugin.data.names import VIEWS

# Features of the trunk's full width; none asked for is the last, flattened.
_POOLED: tuple[list[str], ...] = ([], ["flatten"], ["res5avg"])


def check_combination(config: Any) -> None:
    """See that the transform makes what the model takes, and that the heads fit the trunk.

    Only configurations whose first training transform is one of ours are looked at.

    Raises:
        SystemExit: what was found, what was expected and how to mend it.
    """
    transforms = config.DATA.TRAIN.TRANSFORMS
    if config.TEST_ONLY or not transforms or transforms[0].get("name") not in VIEWS:
        return
    transform, model, inputs = transforms[0], config.MODEL, config.DATA.TRAIN.INPUT_KEY_NAMES
    views = VIEWS[transform["name"]]
    missing = [name for name in inputs if name not in views]
    if missing:
        raise SystemExit(
            f"pirl_plugin: config.DATA.TRAIN.INPUT_KEY_NAMES asks for '{missing[0]}', and "
            f"{transform['name']} makes {' and '.join(views)}: take the config of its own task, "
            f"such as config=pretrain/pirl/jigsaw_8node or rotation_8node"
        )
    _check_views_are_used(model, inputs)
    for view, features, name, options in _first_modules(model, inputs):
        _check_width(model, features, name, options)
        expected = transform.get("grid", 3) ** 2 if view == "patches" else 1
        found = options.get("num_patches", 1)
        if name == "pirl_head" and found != expected:
            raise SystemExit(
                f"pirl_plugin: the head on '{view}' has num_patches = {found}, expected {expected} "
                f"with {transform['name']}: set it in config.MODEL.HEAD.PARAMS"
            )
    hidden = model.HEAD.get("HIDDEN_DIM")
    if hidden and not any(module[2] == "pirl_head" for module in _first_modules(model, inputs)):
        raise SystemExit(
            f"pirl_plugin: config.MODEL.HEAD.HIDDEN_DIM = {hidden} is for pirl_head, and this "
            f"config has none: leave the model overlay's _mlp away"
        )


def _check_views_are_used(model: Any, inputs: list[str]) -> None:
    mapped = [entry[0] for entry in model.MULTI_INPUT_HEAD_MAPPING]
    if len(inputs) > 1 and sorted(mapped) != sorted(inputs):
        raise SystemExit(
            f"pirl_plugin: config.MODEL.MULTI_INPUT_HEAD_MAPPING is for {mapped}, and "
            f"config.DATA.TRAIN.INPUT_KEY_NAMES are {list(inputs)}: expected a head for each"
        )


def _first_modules(model: Any, inputs: list[str]) -> list[tuple[str, list[str], str, Any]]:
    """For each head: its view, its features, and name and options of its first module."""
    heads, mapping = model.HEAD.PARAMS, model.MULTI_INPUT_HEAD_MAPPING
    if not mapping:  # one input, whose heads are modules of a sequence
        heads, mapping = heads[:1], [[inputs[0], []]]
    modules = [head[0] if isinstance(head[0], list) else head for head in heads]
    return [
        (view, list(features), module[0], module[1])
        for (view, features), module in zip(mapping, modules, strict=True)
    ]


def _check_width(model: Any, features: list[str], name: str, options: Any) -> None:
    width = trunk_width(model.TRUNK)
    found = options.get("in_dim") if name == "pirl_head" else options.get("dims", [None])[0]
    if width is not None and features in _POOLED and found not in (None, width):
        raise SystemExit(
            f"pirl_plugin: the head {name} takes {found} features, and the trunk "
            f"{model.TRUNK.NAME} has {width}: set config.MODEL.HEAD.IN_DIM={width}, or take the "
            f"trunk and its heads together from +config/pirl/models=NAME"
        )


def trunk_width(trunk: Any) -> int | None:
    """Width of the pooled features of a ``MODEL.TRUNK`` section; None for trunks unknown here."""
    if trunk.NAME == "resnet":
        return 2048 * trunk.RESNETS.WIDTH_MULTIPLIER
    if trunk.NAME == "pirl_resnet":
        section = trunk.get("PIRL_RESNET") or {}
        expansion = 4 if section.get("DEPTH", 18) >= 50 else 1
        return round(64 * section.get("WIDTH_MULTIPLIER", 1)) * 8 * expansion
    return None
