"""A pre-trained trunk with its heads and views: f(v_I) and g(v_It) of images."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import update_bn

from pirl_plugin.checkpoints.load import trunk_in
from pirl_plugin.checkpoints.read import read_checkpoint
from pirl_plugin.checkpoints.training_run import run_config
from pirl_plugin.evaluation.features import centre_crop, normalization_of
from pirl_plugin.images import names
from pirl_plugin.models.head import PIRLHead
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.views.jigsaw import JigsawViews, RotationJigsawViews
from pirl_plugin.views.pixels import image_generator, normalize_images
from pirl_plugin.views.rotation import RotationViews

Views = JigsawViews | RotationViews
_VIEWS: dict[str, type[JigsawViews] | type[RotationViews]] = {
    names.JIGSAW: JigsawViews,
    names.ROTATION: RotationViews,
    names.ROTATION_JIGSAW: RotationJigsawViews,
    names.PREDICT_JIGSAW: JigsawViews,  # adds the image, which the task does not use
    names.PREDICT_ROTATION: RotationViews,
}
_HEAD = re.compile(r"(\d+)\.((?:project(?:\.\d+)?|merge)\.(?:weight|bias))")
_BATCH = 64  # smallest batch for BatchNorm's statistics, images


@dataclass(frozen=True)
class PretextModel:
    """A pre-trained trunk, its heads, and the pretext transform of its training.

    Attributes:
        trunk: the trunk, in evaluation mode.
        f: head of the image, or None if the checkpoint has no pair of heads.
        g: head of the transformed image, or None.
        views: make the transformed image; ``image_size`` is the side of the image.
        representation: the compared embeddings, in words.
        normalize: maps uint8 images to floats, as in the trunk's training.
        transformed_trunk: trunk for transformed images; None: the same trunk.
    """

    trunk: AnyTrunk
    f: PIRLHead | None
    g: PIRLHead | None
    views: Views
    representation: str
    normalize: Callable[[Tensor], Tensor] = normalize_images
    transformed_trunk: AnyTrunk | None = None

    @torch.no_grad()
    def embed_images(self, images: Tensor) -> Tensor:
        """Compute f(v_I) of uint8 ``(B, 3, S, S)``, or pooled features: float32 ``(B, D)``."""
        features: Tensor = self.trunk(self._normalized(images), ["flatten"])[0]
        return (features if self.f is None else self.f(features)).cpu()

    @torch.no_grad()
    def embed_transformed(self, transformed: Tensor) -> Tensor:
        """Compute g(v_It), or pooled features averaged over patches: float32 ``(B, D)``.

        Args:
            transformed: uint8 ``(B, P, 3, H, W)``, P patches of each image, or 1 rotated image.
        """
        trunk = self.transformed_trunk or self.trunk
        features: Tensor = trunk(self._normalized(transformed.flatten(0, 1)), ["flatten"])[0]
        if self.g is not None:  # (B·P, width) -> (B, D)
            return self.g(features).cpu()
        return features.unflatten(0, transformed.shape[:2]).mean(dim=1).cpu()

    def with_own_statistics(self, images: Tensor, transformed: Tensor) -> PretextModel:
        """Return the model with separate BatchNorm statistics of images and transformed images.

        In training, BatchNorm also normalises each kind of input by its own batch.

        Args:
            images: uint8 ``(B, 3, S, S)``, B at least 2.
            transformed: uint8 ``(B, P, 3, H, W)``.
        """
        parts = max(1, len(images) // _BATCH)
        trunk, transformed_trunk = copy.deepcopy(self.trunk), copy.deepcopy(self.trunk)
        update_bn(map(self._normalized, images.tensor_split(parts)), trunk)
        patches = (part.flatten(0, 1) for part in transformed.tensor_split(parts))
        update_bn(map(self._normalized, patches), transformed_trunk)
        return replace(self, trunk=trunk, transformed_trunk=transformed_trunk)

    def views_of(self, pixels: Tensor, row: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Return the centre crop of an image, and transformed versions of it.

        Args:
            pixels: uint8 ``(3, H, W)``.
            row: row of the image in its data set, a key of the draws.
            count: number of versions.
            seed: seed of the draws.

        Returns:
            uint8 ``(3, S, S)`` and ``(count, P, 3, h, w)``.
        """
        key = "patches" if isinstance(self.views, JigsawViews) else "rotated"
        drawn = [self.views(pixels, image_generator(seed, i, row))[key] for i in range(count)]
        versions = torch.stack([each if each.ndim == 4 else each[None] for each in drawn])
        return centre_crop(pixels, self.views.image_size), versions

    def _normalized(self, images: Tensor) -> Tensor:
        return self.normalize(images.to(next(self.trunk.parameters()).device))


def load_pretext_model(
    path: Path,
    trust_pickle: bool = False,
    other: Mapping[str, Any] | None = None,
    device: str | torch.device = "cpu",
    size: int | None = None,
) -> PretextModel:
    """Load the model of a checkpoint, with the views of its run.

    Args:
        path: any checkpoint that ``pirl-plugin export`` reads.
        trust_pickle: as in ``pirl-plugin export``.
        other: the configuration of another run. Its views are used if this run has no transformed
            images (NPID) or no configuration; None: the paper's jigsaw.
        device: device of trunk and heads.
        size: side of the image view, pixels, if the run has none; None: the other's, or 224.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds no complete trunk, or safe loading refuses it.
    """
    content, config = read_checkpoint(path, trust_pickle), run_config(path)
    views = _views(_entry(config), _entry(other), size)
    heads = _heads(content)
    patches = views.grid**2 if isinstance(views, JigsawViews) else 1
    f = g = None
    what = "the trunk's pooled features, of patches their mean: no pair of heads f and g"
    if [head.num_patches for head in heads] == [patches, 1]:  # the configs have g first
        g, f = (head.to(device) for head in heads)
        what = "f(v_I) and g(v_It), by the heads in the checkpoint"
    trunk = trunk_in(content, path).to(device)
    return PretextModel(trunk, f, g, views, what, normalization_of(config or other))


def has_transformed_images(config: Mapping[str, Any] | None) -> bool:
    """Return whether a run has patches or rotated images, and an image size."""
    return _entry(config).get("name") in _VIEWS and "image_size" in _entry(config)


def _entry(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the first entry of ``TRANSFORMS``: it makes the views."""
    transforms = config["DATA"]["TRAIN"]["TRANSFORMS"] if config else []
    return dict(transforms[0]) if transforms else {}


def _views(entry: dict[str, Any], other: dict[str, Any], size: int | None) -> Views:
    """Return the views of an entry; if it has no transformed images, the views of the other."""
    if other.get("name") not in _VIEWS:
        other = {"name": names.JIGSAW}
    side = size or other.get("image_size", 224)
    if entry.get("name") not in _VIEWS:
        side = entry.get("image_size", side)
        entry = {**other, "image_size": side}
    chosen = {"image_size": side, **entry}
    return _VIEWS[chosen["name"]].from_entry(chosen)


def _heads(content: Mapping[str, Any]) -> list[PIRLHead]:
    """Return the heads of a host's checkpoint, by position; none if one is not from this plugin."""
    state: Any = content
    for key in ("classy_state_dict", "base_model", "model", "heads"):
        state = state.get(key) if isinstance(state, Mapping) else None
    tensors: dict[int, dict[str, Tensor]] = {}
    for name, tensor in (state or {}).items():
        found = _HEAD.fullmatch(name)
        if found is None:
            return []
        tensors.setdefault(int(found[1]), {})[found[2]] = tensor
    return [_head(weights) for _, weights in sorted(tensors.items())]


def _head(weights: dict[str, Tensor]) -> PIRLHead:
    hidden = weights.get("project.0.weight")
    last = weights["project.2.weight" if hidden is not None else "project.weight"]
    patches = weights["merge.weight"].shape[1] // len(last) if "merge.weight" in weights else 1
    first, width = (last, None) if hidden is None else (hidden, len(hidden))
    head = PIRLHead(first.shape[1], len(last), patches, width)
    head.load_state_dict(weights)
    return head.eval()
