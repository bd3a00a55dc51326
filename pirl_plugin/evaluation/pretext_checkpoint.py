"""Trunk, heads and views of a pre-training, from its checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from pirl_plugin.checkpoints.load import trunk_in
from pirl_plugin.checkpoints.read import read_checkpoint
from pirl_plugin.checkpoints.training_run import channel_statistics, run_config
from pirl_plugin.evaluation.bank_rows import bank_rows
from pirl_plugin.evaluation.features import IMAGENET_NORMALIZATION, Normalization
from pirl_plugin.evaluation.pretext_model import PretextModel, Views
from pirl_plugin.images.names import (
    IMAGE,
    JIGSAW,
    PREDICT_JIGSAW,
    PREDICT_ROTATION,
    ROTATION,
    ROTATION_JIGSAW,
)
from pirl_plugin.models.head import PIRLHead
from pirl_plugin.views.jigsaw import JigsawViews, RotationJigsawViews
from pirl_plugin.views.rotation import RotationViews

_VIEWS: dict[str, type[JigsawViews] | type[RotationViews]] = {
    JIGSAW: JigsawViews,
    ROTATION: RotationViews,
    ROTATION_JIGSAW: RotationJigsawViews,
    PREDICT_JIGSAW: JigsawViews,  # with the image, which the task itself does not see
    PREDICT_ROTATION: RotationViews,
}
_SIZE = 224  # of the paper's images, pixels
_HEAD = re.compile(r"(\d+)\.(project(?:\.\d+)?|merge)\.(weight|bias)")


def load_pretext_model(
    path: Path,
    trust_pickle: bool = False,
    other: dict[str, Any] | None = None,
    device: str = "cpu",
    image_size: int | None = None,
) -> PretextModel:
    """The model of a checkpoint, with the views of the ``train_config.yaml`` beside it.

    Args:
        path: any checkpoint that ``pirl-plugin export`` reads.
        trust_pickle: as there.
        other: the configuration of another run, whose views are taken where there is none beside
            the checkpoint or it has images alone (NPID), and whose image size where that one has
            none; the paper's where None.
        device: where trunk and heads compute.
        image_size: side of the image view, pixels, in place of that of ``other``.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds no whole ResNet trunk, safe loading refuses it, its run had images of
            another size than the paper's alone and there is no ``other``, or its memory bank's
            shards are damaged or of a newer version.
    """
    content = read_checkpoint(path, trust_pickle)
    trunk = trunk_in(content, path).to(device)
    config = run_config(path)
    views = _views(path, config or other, other, image_size or view_size_of(other))
    heads = _heads(content)
    f, g = _choose(heads, views)
    if g is None or f is None:
        f = g = None
        found = "no pair of heads f and g" if heads else "no heads"
        what = f"the trunk's pooled res5 features, of patches their mean: {found} in the checkpoint"
    else:
        f, g = f.to(device), g.to(device)
        what = "f(v_I) and g(v_It), by the heads in the checkpoint"
    return PretextModel(
        trunk,
        f,
        g,
        views,
        what,
        bank_rows(content, path) if f is not None else None,
        images=_nested(content, "pirl_plugin", "images").get("train"),
        normalize=normalization_of(config or other),
    )


def view_size_of(config: dict[str, Any] | None) -> int | None:
    """Side of the image view of a pre-training, pixels; None of runs without such a view."""
    size = _entry(config).get("image_size")
    return int(size) if size else None


def normalization_of(config: dict[str, Any] | None) -> Normalization:
    """Mean and deviation that a run's images were normalised with; ImageNet's if it says none."""
    mean, std = channel_statistics(config)
    ours = IMAGENET_NORMALIZATION
    return Normalization(mean or ours.mean, std or ours.std)


def has_transformed_images(config: dict[str, Any] | None) -> bool:
    """Whether a pre-training saw patches or rotated images."""
    return _entry(config).get("name") in _VIEWS


def _entry(config: dict[str, Any] | None) -> dict[str, Any]:
    """The first entry of ``TRANSFORMS``, which makes the views."""
    transforms = config["DATA"]["TRAIN"]["TRANSFORMS"] if config else []
    return dict(transforms[0]) if transforms else {}


def _views(
    path: Path,
    config: dict[str, Any] | None,
    other: dict[str, Any] | None,
    image_size: int | None,
) -> Views:
    entry = _entry(config)
    if entry.get("name") == IMAGE:
        size = entry.get("image_size", _SIZE)
        seen = _entry(other) if has_transformed_images(other) else {"name": JIGSAW}
        if size != _SIZE and len(seen) == 1:
            raise ValueError(
                f"{path} is of images alone, of {size} px: expected a run with patches or rotated "
                f"images beside it, whose sizes are taken; name its checkpoint too"
            )
        entry = {**seen, **entry, "name": seen["name"]}
    made, size = _VIEWS.get(entry.get("name", "")), image_size or _SIZE
    if made is None:
        return JigsawViews(image_size=size)
    return made.from_entry({"image_size": size, **entry})


def _nested(content: Mapping[str, object], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        below = content.get(key)
        if not isinstance(below, Mapping):
            return {}
        content = below
    return content


def _heads(content: Mapping[str, object]) -> dict[int, PIRLHead]:
    """Position → head, of a checkpoint of the host whose heads are all this package's."""
    state = _nested(content, "classy_state_dict", "base_model", "model", "heads")
    tensors: dict[int, dict[str, Tensor]] = {}
    for name, tensor in state.items():
        found = _HEAD.fullmatch(name)
        if found is None:
            return {}
        tensors.setdefault(int(found[1]), {})[name.partition(".")[2]] = tensor
    return {number: _head(weights) for number, weights in sorted(tensors.items())}


def _head(weights: dict[str, Tensor]) -> PIRLHead:
    hidden = weights.get("project.0.weight")
    last = weights["project.2.weight" if hidden is not None else "project.weight"]
    first = last if hidden is None else hidden
    patches = weights["merge.weight"].shape[1] // len(last) if "merge.weight" in weights else 1
    width = None if hidden is None else len(hidden)
    head = PIRLHead(first.shape[1], len(last), patches, width)
    head.load_state_dict(weights)
    return head.eval()


def _choose(heads: dict[int, PIRLHead], views: Views) -> tuple[PIRLHead | None, PIRLHead | None]:
    """The heads f and g, or neither; the configs have g first. The patches must match."""
    if len(heads) != 2:
        return None, None
    g, f = heads.values()
    patches = views.grid**2 if isinstance(views, JigsawViews) else 1
    return (f, g) if (f.num_patches, g.num_patches) == (1, patches) else (None, None)
