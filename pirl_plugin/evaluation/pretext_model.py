"""What a pre-training learnt: its trunk, heads and views; f(v_I) and g(v_It) of images."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.optim.swa_utils import update_bn

from pirl_plugin.evaluation.features import IMAGENET_NORMALIZATION, Normalization, centre_crop
from pirl_plugin.models.head import PIRLHead
from pirl_plugin.models.resnet import ResNetTrunk
from pirl_plugin.models.timm_trunk import TimmTrunk
from pirl_plugin.views.jigsaw import JigsawViews
from pirl_plugin.views.pixels import image_generator
from pirl_plugin.views.rotation import RotationViews

Views = JigsawViews | RotationViews
_BATCH = 64  # images whose statistics are taken at a time, at least


@dataclass(frozen=True)
class PretextModel:
    """What a pre-training learnt, and the transform that it was to be invariant to.

    Attributes:
        trunk: in evaluation mode.
        transformed_trunk: the same with BatchNorm's statistics of transformed images, or None where
            the trunk's own serve both.
        f: head of the image, or None where the checkpoint has none.
        g: head of the transformed image, or None.
        views: make the transformed image; ``image_size`` is the side of the image.
        representation: what is compared, for people.
        bank: ``(|D|, dim)``, the memory bank in the checkpoint, or None.
        images: digest of the list of the rows' images, or None.
        normalize: as the trunk was trained with.
    """

    trunk: ResNetTrunk | TimmTrunk
    f: PIRLHead | None
    g: PIRLHead | None
    views: Views
    representation: str
    bank: Tensor | None = None
    transformed_trunk: ResNetTrunk | TimmTrunk | None = None
    images: str | None = None
    normalize: Normalization = IMAGENET_NORMALIZATION

    @property
    def transformed_key(self) -> str:
        """Of the views: ``patches`` or ``rotated``."""
        return "patches" if isinstance(self.views, JigsawViews) else "rotated"

    @torch.no_grad()
    def embed_images(self, images: Tensor) -> Tensor:
        """f(v_I), or the pooled features where there is no head.

        Args:
            images: uint8 ``(B, 3, S, S)``.

        Returns:
            float32 ``(B, D)``, on the CPU.
        """
        features = self._features(self.trunk, images)
        return (features if self.f is None else self.f(features)).cpu()

    @torch.no_grad()
    def embed_transformed(self, transformed: Tensor) -> Tensor:
        """g(v_It), or the pooled features, averaged over the patches, where there is no head.

        Args:
            transformed: uint8 ``(B, P, 3, H, W)``, P patches of each image, or 1 rotated image.

        Returns:
            float32 ``(B, D)``, on the CPU.
        """
        trunk = self.transformed_trunk or self.trunk
        features = self._features(trunk, transformed.flatten(0, 1))  # (B·P, width)
        if self.g is not None:
            return self.g(features).cpu()
        return features.unflatten(0, transformed.shape[:2]).mean(dim=1).cpu()

    def with_own_statistics(self, images: Tensor, transformed: Tensor) -> PretextModel:
        """The model with BatchNorm's statistics of images and of transformed images apart.

        This is how the loss saw f(v_I) and g(v_It) in training, where each kind is normalised by
        its batch.

        Args:
            images: uint8 ``(B, 3, S, S)``, B of 2 or more, of which the statistics are taken.
            transformed: uint8 ``(B, P, 3, H, W)``.
        """
        parts = max(1, len(images) // _BATCH)
        of_images = map(self._normalized, images.tensor_split(parts))
        patches = (part.flatten(0, 1) for part in transformed.tensor_split(parts))
        of_transformed = map(self._normalized, patches)
        trunk, transformed_trunk = copy.deepcopy(self.trunk), copy.deepcopy(self.trunk)
        update_bn(of_images, trunk)
        update_bn(of_transformed, transformed_trunk)
        return replace(self, trunk=trunk, transformed_trunk=transformed_trunk)

    def _features(self, trunk: ResNetTrunk | TimmTrunk, images: Tensor) -> Tensor:
        features: Tensor = trunk(self._normalized(images), ["flatten"])[0]
        return features

    def _normalized(self, images: Tensor) -> Tensor:
        images = images.to(next(self.trunk.parameters()).device)
        return self.normalize(images)

    def views_of(self, pixels: Tensor, row: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """The image, cropped at its centre, and transformed versions of it.

        Args:
            pixels: uint8 ``(3, H, W)``.
            row: of the image in its data set; with ``seed`` the key of the draws.
            count: versions.
            seed: of the draws.

        Returns:
            uint8 ``(3, S, S)`` and ``(count, P, 3, h, w)``.
        """
        versions = []
        for epoch in range(count):
            drawn = self.views(pixels, image_generator(seed, epoch, row))[self.transformed_key]
            versions.append(drawn if drawn.ndim == 4 else drawn[None])
        return centre_crop(pixels, self.views.image_size), torch.stack(versions)
