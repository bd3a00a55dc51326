"""Refuse, before training starts, parts of a configuration that do not belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pirl_plugin.images.names import VIEWS
from pirl_plugin.models.width import trunk_width
from pirl_plugin.vissl.checks.refusal import refuse, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vissl.config import AttrDict

# Features of the trunk's full width; none asked for is the last, flattened.
_POOLED: tuple[list[str], ...] = ([], ["flatten"], ["res5avg"])


def check_combination(config: AttrDict) -> None:
    """See that the transform makes what the model takes, and that the heads fit the trunk.

    Only configurations whose first training transform is one of ours are looked at.

    Raises:
        SystemExit: what was found, what was expected and what to do.
    """
    transforms = config.DATA.TRAIN.TRANSFORMS
    if config.TEST_ONLY or not transforms or transforms[0].get("name") not in VIEWS:
        return
    transform, model, inputs = transforms[0], config.MODEL, config.DATA.TRAIN.INPUT_KEY_NAMES
    views = VIEWS[transform["name"]]
    missing = [name for name in inputs if name not in views]
    if missing:
        refuse(
            f"config.DATA.TRAIN.INPUT_KEY_NAMES = {shown(list(inputs))}: expected views among "
            f"{' and '.join(views)}, which {transform['name']} makes; take the config of its own "
            f"task, such as config=pretrain/pirl/jigsaw_8node or rotation_8node"
        )
    _check_views_are_used(model, inputs)
    for view, features, name, options in _first_modules(model, inputs):
        _check_width(model, features, name, options)
        expected = transform.get("grid", 3) ** 2 if view == "patches" else 1
        found = options.get("num_patches", 1)
        if name == "pirl_head" and found != expected:
            refuse(
                f"config.MODEL.HEAD.PARAMS, the head on '{view}': num_patches = {found}: expected "
                f"{expected}, the patches that {transform['name']} makes of an image; set it there"
            )
    hidden = model.HEAD.get("HIDDEN_DIM")
    if hidden and not any(module[2] == "pirl_head" for module in _first_modules(model, inputs)):
        refuse(
            f"config.MODEL.HEAD.HIDDEN_DIM = {hidden}: expected null, as it is for pirl_head and "
            f"this config has none; take the overlay of models without _mlp"
        )


def _check_views_are_used(model: AttrDict, inputs: list[str]) -> None:
    mapping = model.MULTI_INPUT_HEAD_MAPPING
    if not isinstance(mapping, list) or not all(
        isinstance(entry, list) and len(entry) == 2 for entry in mapping
    ):
        refuse(
            f"config.MODEL.MULTI_INPUT_HEAD_MAPPING = {shown(mapping)}: expected a list of "
            f"[INPUT, [FEATURE]]; set config.MODEL.MULTI_INPUT_HEAD_MAPPING=[[images,[flatten]]]"
        )
    mapped = [entry[0] for entry in mapping]
    if len(inputs) > 1 and sorted(mapped) != sorted(inputs):
        refuse(
            f"config.MODEL.MULTI_INPUT_HEAD_MAPPING = {shown(list(model.MULTI_INPUT_HEAD_MAPPING))}"
            f": expected a head for each of config.DATA.TRAIN.INPUT_KEY_NAMES = "
            f"{shown(list(inputs))}; name those"
        )
    heads = model.HEAD.PARAMS
    if (mapped and len(heads) != len(mapped)) or not heads:
        refuse(
            f"config.MODEL.HEAD.PARAMS = {shown(list(heads))}: expected {len(mapped) or 1}, a head "
            f"for each of config.DATA.TRAIN.INPUT_KEY_NAMES = {shown(list(inputs))}; name as many"
        )


def _first_modules(
    model: AttrDict, inputs: list[str]
) -> list[tuple[str, list[str], str, Mapping[str, Any]]]:
    """For each head: its view, its features, and name and options of its first module."""
    heads, mapping = model.HEAD.PARAMS, model.MULTI_INPUT_HEAD_MAPPING
    if not mapping:  # one input, whose heads are modules of a sequence
        heads, mapping = heads[:1], [[inputs[0], []]]
    modules = [head[0] if isinstance(head[0], list) else head for head in heads]
    return [
        (view, list(features), module[0], module[1])
        for (view, features), module in zip(mapping, modules, strict=True)
    ]


def _check_width(
    model: AttrDict, features: list[str], name: str, options: Mapping[str, Any]
) -> None:
    try:
        width = trunk_width(model.TRUNK)
    except ValueError as error:  # timm is not installed, or does not have the network
        refuse(f"config.MODEL.TRUNK = {shown(model.TRUNK.NAME)}: {error}", error)
    found = options.get("in_dim") if name == "pirl_head" else options.get("dims", [None])[0]
    if width is not None and features in _POOLED and found not in (None, width):
        refuse(
            f"config.MODEL.HEAD.PARAMS: {name} takes {found} features: expected {width}, those of "
            f"the trunk {model.TRUNK.NAME}; set config.MODEL.HEAD.IN_DIM={width}, or take the "
            f"trunk and its heads together from +config/pirl/models=NAME"
        )
