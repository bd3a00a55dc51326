"""Trunk, heads and views of a pre-training, from its checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from pirl_plugin.checkpoints.read import read_checkpoint
from pirl_plugin.checkpoints.training_run import channel_statistics, run_config
from pirl_plugin.data.views.jigsaw import JigsawViews, RotationJigsawViews
from pirl_plugin.data.views.rotation import RotationViews
from pirl_plugin.evaluation.features import IMAGENET, Normalization
from pirl_plugin.evaluation.pretext_model import PretextModel, Views
from pirl_plugin.models.head import PIRLHead
from pirl_plugin.models.load import load_trunk

_VIEWS: dict[str, type[JigsawViews] | type[RotationViews]] = {
    "PIRLJigsaw": JigsawViews,
    "PIRLRotation": RotationViews,
    "PIRLRotationJigsaw": RotationJigsawViews,
    "PredictJigsaw": JigsawViews,
    "PredictRotation": RotationViews,
}
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
            the checkpoint, and whose image size where that one has none; the paper's where None.
        device: where trunk and heads compute.
        image_size: side of the image view, pixels, in place of that of ``other``.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds no whole ResNet trunk, or safe loading refuses it.
    """
    trunk = load_trunk(path, trust_pickle).to(device)
    content = read_checkpoint(path, trust_pickle)
    config = run_config(path)
    views = _views(config or other, image_size or view_size_of(other))
    heads = _heads(content)
    f, g = _choose(heads, views)
    if g is None or f is None:
        f = g = None
        what = "the trunk's pooled res5 features, of patches their mean: no heads in the checkpoint"
    else:
        f, g = f.to(device), g.to(device)
        what = "f(v_I) and g(v_It), by the heads in the checkpoint"
    bank = _nested(content, "loss").get("bank.rows")
    if bank is None:
        bank = _nested(content, "classy_state_dict", "loss").get("bank.rows")
    return PretextModel(
        trunk,
        f,
        g,
        views,
        what,
        bank if f is not None else None,
        path_hashes=_path_hashes(content),
        normalize=normalization_of(config or other),
    )


def view_size_of(config: dict[str, Any] | None) -> int | None:
    """Side of the image view of a pre-training, pixels; None of runs without such a view."""
    transforms = config["DATA"]["TRAIN"]["TRANSFORMS"] if config else []
    size = transforms[0].get("image_size") if transforms else None
    return int(size) if size else None


def normalization_of(config: dict[str, Any] | None) -> Normalization:
    """Mean and deviation that a run's images were normalised with; ImageNet's if it says none."""
    mean, std = channel_statistics(config)
    return Normalization(mean or IMAGENET.mean, std or IMAGENET.std)


def _views(config: dict[str, Any] | None, image_size: int | None) -> Views:
    transforms = config["DATA"]["TRAIN"]["TRANSFORMS"] if config else []
    entry = dict(transforms[0]) if transforms else {}
    name = entry.pop("name", "")
    photometric = entry.pop("photometric", None) or {}
    entry.pop("indices", None)
    if name not in _VIEWS:
        return JigsawViews(image_size=image_size or 224)
    entry.setdefault("image_size", image_size or 224)
    return _VIEWS[name](**{**photometric, **entry})


def _nested(content: Mapping[str, object], *keys: str) -> Mapping[str, Any]:
    for key in keys:
        below = content.get(key)
        if not isinstance(below, Mapping):
            return {}
        content = below
    return content


def _path_hashes(content: Mapping[str, object]) -> Tensor | None:
    """Of the images of the bank's rows, as a hook of ours keeps them; None in older checkpoints."""
    hooks = _nested(content, "classy_state_dict", "hooks")
    return next((state["path_hashes"] for state in hooks.values() if "path_hashes" in state), None)


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
