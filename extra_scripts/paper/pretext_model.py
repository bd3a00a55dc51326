"""A pre-trained trunk with its heads and views, to compute f(v_I) and g(v_It)."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from run_config import run_config
from torch import Tensor
from torch.optim.swa_utils import update_bn

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.read import read_checkpoint
from pirl_plugin.images import names
from pirl_plugin.models.head import PIRLHead
from pirl_plugin.models.preprocessing import center_crop, normalize_images
from pirl_plugin.models.trunks import AnyTrunk
from pirl_plugin.views.jigsaw import JigsawViews, RotationJigsawViews
from pirl_plugin.views.pixels import image_generator
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
_BATCH = 64  # smallest batch for BatchNorm statistics, in images


@dataclass(frozen=True)
class PretextModel:
    """A pre-trained trunk with its heads and its pretext transform.

    Attributes:
        trunk: the trunk, in evaluation mode; it records the images that it expects.
        f: head for images, or None if the checkpoint has no pair of heads.
        g: head for transformed images, or None.
        views: views that make the transformed image; ``image_size`` is the side of the image.
        representation: description of the compared embeddings.
        transformed_trunk: trunk for transformed images; None: the same trunk.
    """

    trunk: AnyTrunk
    f: PIRLHead | None
    g: PIRLHead | None
    views: Views
    representation: str
    transformed_trunk: AnyTrunk | None = None

    @torch.no_grad()
    def embed_images(self, images: Tensor) -> Tensor:
        """Compute f(v_I) for uint8 ``(B, 3, S, S)``, or pooled features: float32 ``(B, D)``."""
        features = self.trunk(self._normalized(images))
        embeddings = features if self.f is None else self.f(features)
        return embeddings.cpu()

    @torch.no_grad()
    def embed_transformed(self, transformed: Tensor) -> Tensor:
        """Compute g(v_It), or pooled features averaged over patches: float32 ``(B, D)``.

        Args:
            transformed: uint8 ``(B, P, 3, H, W)``, P patches per image, or 1 rotated image.
        """
        trunk = self.transformed_trunk or self.trunk
        patches = transformed.flatten(0, 1)  # (B·P, 3, H, W)
        features: Tensor
        features = trunk(self._normalized(patches))  # (B·P, width)
        if self.g is not None:
            return self.g(features).cpu()
        return features.unflatten(0, transformed.shape[:2]).mean(dim=1).cpu()

    def with_own_statistics(self, images: Tensor, transformed: Tensor) -> PretextModel:
        """Return the model with separate BatchNorm statistics for images and transformed images.

        In training, BatchNorm also normalizes each kind of input by its own batch.

        Args:
            images: uint8 ``(B, 3, S, S)``, B at least 2.
            transformed: uint8 ``(B, P, 3, H, W)``.
        """
        num_batches = max(1, len(images) // _BATCH)
        trunk = copy.deepcopy(self.trunk)
        update_bn(map(self._normalized, images.tensor_split(num_batches)), trunk)
        transformed_trunk = copy.deepcopy(self.trunk)
        patches = (batch.flatten(0, 1) for batch in transformed.tensor_split(num_batches))
        update_bn(map(self._normalized, patches), transformed_trunk)
        return replace(self, trunk=trunk, transformed_trunk=transformed_trunk)

    def views_of(self, pixels: Tensor, row: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Return an image's center crop, and transformed versions.

        Args:
            pixels: uint8 ``(3, H, W)``.
            row: the image's row in its data set, a key for the draws.
            count: number of versions.
            seed: seed for the draws.

        Returns:
            uint8 ``(3, S, S)`` and ``(count, P, 3, h, w)``.
        """
        key = "patches" if isinstance(self.views, JigsawViews) else "transformed"
        versions = []
        for number in range(count):
            version = self.views(pixels, image_generator(seed, number, row))[key]
            versions.append(version if version.ndim == 4 else version[None])
        return center_crop(pixels, self.views.image_size), torch.stack(versions)

    def _normalized(self, images: Tensor) -> Tensor:
        device = next(self.trunk.parameters()).device
        config = self.trunk.network_config
        return normalize_images(images.to(device), config.mean, config.std)


def load_pretext_model(
    path: Path,
    *,
    other: Mapping[str, Any] | None = None,
    size: int | None = None,
    device: str | torch.device = "cpu",
    **trunk_options: Any,
) -> PretextModel:
    """Load a checkpoint's model, with the views from its run.

    Args:
        path: any checkpoint that ``pirl-plugin export`` reads.
        other: another run's configuration. Its views are used if this run has no transformed
            images (NPID) or no configuration; None: the paper's jigsaw.
        size: image view size in pixels, if the run has none; None: the other's, or 224.
        device: device of trunk and heads.
        **trunk_options: as in :func:`pirl_plugin.load_trunk`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there is no complete trunk, or safe loading refuses the file.
    """
    content = read_checkpoint(path)
    trunk = load_trunk(path, **trunk_options).to(device)
    views = training_views(path, other, size)
    heads = _heads(content)
    patches = views.grid**2 if isinstance(views, JigsawViews) else 1
    # Without a pair of heads for these views, as in baselines, compare trunk features.
    if [head.num_patches for head in heads] != [patches, 1]:
        representation = "the trunk's pooled features, of patches their mean: no pair of heads"
        return PretextModel(trunk, None, None, views, f"{representation} f and g")
    g, f = (head.to(device) for head in heads)  # the configs have g first
    representation = "f(v_I) and g(v_It), by the heads in the checkpoint"
    return PretextModel(trunk, f, g, views, representation)


def _heads(content: Mapping[str, Any]) -> list[PIRLHead]:
    """Return a VISSL checkpoint's heads by position; none if one is not from this plugin."""
    state: Any = content
    for key in ("classy_state_dict", "base_model", "model", "heads"):
        state = state.get(key) if isinstance(state, Mapping) else None
    weights_of: dict[int, dict[str, Tensor]] = {}
    for name, tensor in (state or {}).items():
        match = _HEAD.fullmatch(name)
        if match is None:
            return []
        weights_of.setdefault(int(match[1]), {})[match[2]] = tensor
    return [_head(weights_of[position]) for position in sorted(weights_of)]


def _head(weights: dict[str, Tensor]) -> PIRLHead:
    """Build a head with the weights' shapes, and load them."""
    if "project.0.weight" in weights:  # a hidden layer
        first = weights["project.0.weight"]
        last = weights["project.2.weight"]
        hidden_dim = len(first)
    else:
        first = last = weights["project.weight"]
        hidden_dim = None
    patches = weights["merge.weight"].shape[1] // len(last) if "merge.weight" in weights else 1
    head = PIRLHead(first.shape[1], len(last), patches, hidden_dim)
    head.load_state_dict(weights)
    return head.eval()


def training_views(
    checkpoint: Path, fallback: Mapping[str, Any] | None = None, size: int | None = None
) -> Views:
    """Return the views, with transformed images, from a checkpoint's run.

    Args:
        checkpoint: any checkpoint.
        fallback: another run's configuration. Its views are used if this run has no
            transformed images (NPID) or no configuration; None: the paper's jigsaw.
        size: image view size in pixels, if the run has none; None: the fallback's, or 224.
    """
    return _views(_view_entry(run_config(checkpoint)), _view_entry(fallback), size)


def has_transformed_images(config: Mapping[str, Any] | None) -> bool:
    """Return whether a run has patches or rotated images, and an image size."""
    entry = _view_entry(config)
    return entry.get("name") in _VIEWS and "image_size" in entry


def _view_entry(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the first entry in ``TRANSFORMS``, which makes the views."""
    transforms = config["DATA"]["TRAIN"]["TRANSFORMS"] if config else []
    return dict(transforms[0]) if transforms else {}


def _views(entry: dict[str, Any], fallback: dict[str, Any], size: int | None) -> Views:
    """Return an entry's views; if it has no transformed images, the other's views."""
    # The run's own size goes before --size, and this before the other run's.
    default = fallback if fallback.get("name") in _VIEWS else {"name": names.JIGSAW}
    side = size or default.get("image_size", 224)
    if entry.get("name") not in _VIEWS:
        side = entry.get("image_size", side)
        entry = {**default, "image_size": side}
    parameters = {"image_size": side, **entry}
    return _VIEWS[parameters["name"]].from_entry(parameters)
