"""The methods of ``peers.py``: PIRL and NPID from this package, the others from lightly."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

import pirl_plugin as pirl


class Method(nn.Module):
    """A trunk together with the modules that a method trains on it.

    Args:
        trunk: network that maps images (B, 3, S, S) to features (B, width).
        width: feature dimension.
        num_images: number of training images.
        image_size: side of the images in pixels.
    """

    views: Callable[..., Any]  # for the loader: image → dictionary of tensors
    trained: nn.ModuleDict  # trunk and heads, which the optimizer updates
    normalize: Callable[[Tensor], Tensor] = staticmethod(pirl.normalize_images)

    def loss(self, batch: dict[str, Tensor], progress: float) -> Tensor:
        """Compute the loss for a batch; ``progress`` runs from 0 to 1 during training."""
        raise NotImplementedError

    def before_training(self, loader: Iterable[dict[str, Tensor]], device: str) -> None:
        """Fill per-image state, such as a memory bank."""

    def after_step(self, batch: dict[str, Tensor]) -> None:
        """Update state that the optimizer does not."""


# SimCLR's color augmentation (Chen et al. 2020, app. A), for images too small for its blur.
SIMCLR_COLORS = {
    "brightness": 0.8,
    "contrast": 0.8,
    "saturation": 0.8,
    "hue": 0.2,
    "jitter_p": 0.8,
    "photometric_p": 0.0,
}


class PIRL(Method):
    """PIRL with the settings from ``quick_jigsaw``; with λ = 0 and only the image, this is NPID.

    Args:
        task: ``jigsaw``, ``rotation`` or ``none``.
        lambda_invariance: λ in Eq. 5; 0 without a task.
        hidden_dim: hidden width in the heads; None: linear heads, as in the paper.
        temperature: temperature in the loss.
        num_patches: number of jigsaw patches used per step, drawn at random.
        augmentation: view arguments that differ from the paper's.
    """

    def __init__(
        self,
        trunk: nn.Module,
        width: int,
        num_images: int,
        image_size: int,
        task: str,
        lambda_invariance: float = 0.75,
        hidden_dim: int | None = None,
        temperature: float = 0.2,
        num_patches: int = 9,
        **augmentation: Any,
    ) -> None:
        super().__init__()
        augmentation = {"image_scale": (0.2, 1.0), **augmentation}
        if task == "jigsaw":
            patches: dict[str, Any] = {
                "patches_crop_size": image_size * 3 // 2,
                "patch_size": image_size * 3 // 8,
            }
            self.views = pirl.JigsawViews(image_size, **patches, **augmentation)
        elif task == "rotation":
            self.views = pirl.RotationViews(image_size, **augmentation)
        else:
            self.views = pirl.ImageViews(image_size, **augmentation)
        self.transformed = {"jigsaw": "patches", "rotation": "transformed", "none": None}[task]
        heads = {"f": pirl.PIRLHead(width, hidden_dim=hidden_dim)}
        if self.transformed:
            self.num_patches = num_patches if task == "jigsaw" else 1
            heads["g"] = pirl.PIRLHead(width, hidden_dim=hidden_dim, num_patches=self.num_patches)
        self.trained = nn.ModuleDict({"trunk": trunk, **heads})
        self.contrast = pirl.PIRLLoss(
            num_images,
            estimator="info_nce",
            temperature=temperature,
            num_negatives=min(1024, num_images // 2),
            lambda_invariance=lambda_invariance if self.transformed else 0.0,
        )

    def before_training(self, loader: Iterable[dict[str, Tensor]], device: str) -> None:
        """Fill the memory bank with embeddings from the untrained network (``bank.init``)."""
        trunk = self.trained["trunk"]
        with torch.no_grad():
            for batch in loader:
                images = self.normalize(batch["images"].to(device))
                self.contrast.fill_bank(batch["index"].to(device), self.trained["f"](trunk(images)))

    def loss(self, batch: dict[str, Tensor], progress: float) -> Tensor:
        """Return Eq. 5."""
        trunk = self.trained["trunk"]
        self.f_image = self.trained["f"](trunk(self.normalize(batch["images"])))
        g_transformed = None
        if self.transformed:
            transformed = batch[self.transformed].unflatten(0, (len(self.f_image), -1))
            transformed = transformed[:, : self.num_patches].flatten(0, 1)  # in random order
            g_transformed = self.trained["g"](trunk(self.normalize(transformed)))
        return self.contrast(self.f_image, g_transformed, batch["index"])

    def after_step(self, batch: dict[str, Tensor]) -> None:
        """Update the memory bank."""
        self.contrast.update(batch["index"], self.f_image)


class TwoViews:
    """Turn lightly's two normalized views into a sample.

    Args:
        transform: a lightly transform for PIL images.
    """

    def __init__(self, transform: Callable[[Any], Any]) -> None:
        self.transform = transform

    def __call__(self, image: Any) -> dict[str, Tensor]:
        """Return ``view_0`` and ``view_1``, float32 (3, S, S)."""
        first, second = self.transform(image)
        return {"view_0": first, "view_1": second}


class SimCLR(Method):
    """Chen et al. 2020 (arXiv 2002.05709)."""

    def __init__(self, trunk: nn.Module, width: int, num_images: int, image_size: int) -> None:
        from lightly.loss import NTXentLoss
        from lightly.models.modules import SimCLRProjectionHead
        from lightly.transforms import SimCLRTransform

        super().__init__()
        # lightly's documentation: no blur for images below 100 px.
        blur = 0.5 if image_size >= 100 else 0.0
        self.views = TwoViews(SimCLRTransform(image_size, min_scale=0.2, gaussian_blur=blur))
        head = SimCLRProjectionHead(width, width, 128)
        self.trained = nn.ModuleDict({"trunk": trunk, "head": head})
        self.contrast = NTXentLoss(temperature=0.2)

    def loss(self, batch: dict[str, Tensor], progress: float) -> Tensor:
        """Return NT-Xent for the two views, which pass through the trunk together."""
        both = torch.cat([batch["view_0"], batch["view_1"]])
        first, second = self.trained["head"](self.trained["trunk"](both)).chunk(2)
        return self.contrast(first, second)


class MomentumMethod(Method):
    """A method whose targets come from a moving average of the trained modules."""

    def __init__(self, trained: nn.ModuleDict) -> None:
        super().__init__()
        self.trained = trained
        self.target = copy.deepcopy(nn.ModuleDict({k: trained[k] for k in ("trunk", "head")}))
        self.target.requires_grad_(False)

    def project(self, modules: nn.ModuleDict, images: Tensor) -> Tensor:
        """Project images to (B, head width)."""
        return modules["head"](modules["trunk"](images))

    def momentum(self, progress: float) -> float:
        """Return the weight of the old target."""
        raise NotImplementedError

    def move_target(self, progress: float) -> None:
        """Move the target toward the trained modules."""
        from lightly.models.utils import update_momentum

        for name, module in self.target.items():
            update_momentum(self.trained[name], module, self.momentum(progress))


class MoCo(MomentumMethod):
    """MoCo v2: Chen et al. 2020 (arXiv 2003.04297), with a queue of 4,096 keys at most."""

    def __init__(self, trunk: nn.Module, width: int, num_images: int, image_size: int) -> None:
        from lightly.loss import NTXentLoss
        from lightly.models.modules import MoCoProjectionHead
        from lightly.transforms import MoCoV2Transform

        head = MoCoProjectionHead(width, width, 128)
        super().__init__(nn.ModuleDict({"trunk": trunk, "head": head}))
        blur = 0.5 if image_size >= 100 else 0.0
        self.views = TwoViews(MoCoV2Transform(image_size, gaussian_blur=blur))
        queue = min(4096, num_images // 128 * 128)
        self.contrast = NTXentLoss(temperature=0.2, memory_bank_size=(queue, 128))

    def momentum(self, progress: float) -> float:
        """Return MoCo v2's constant for short schedules."""
        return 0.99

    def loss(self, batch: dict[str, Tensor], progress: float) -> Tensor:
        """Return InfoNCE for the queries against their keys and the queue."""
        self.move_target(progress)
        query = self.project(self.trained, batch["view_0"])
        with torch.no_grad():
            key = self.project(self.target, batch["view_1"])
        return self.contrast(query, key)


class BYOL(MomentumMethod):
    """Grill et al. 2020 (arXiv 2006.07733)."""

    def __init__(self, trunk: nn.Module, width: int, num_images: int, image_size: int) -> None:
        from lightly.loss import NegativeCosineSimilarity
        from lightly.models.modules import BYOLPredictionHead, BYOLProjectionHead
        from lightly.transforms import SimCLRTransform

        head = BYOLProjectionHead(width, 2 * width, 128)
        predictor = BYOLPredictionHead(128, 2 * width, 128)
        super().__init__(nn.ModuleDict({"trunk": trunk, "head": head, "predictor": predictor}))
        blur = 0.5 if image_size >= 100 else 0.0
        self.views = TwoViews(SimCLRTransform(image_size, min_scale=0.2, gaussian_blur=blur))
        self.similarity = NegativeCosineSimilarity()

    def momentum(self, progress: float) -> float:
        """Return BYOL's cosine from 0.99 to 1."""
        return 1 - 0.01 * (math.cos(math.pi * progress) + 1) / 2

    def loss(self, batch: dict[str, Tensor], progress: float) -> Tensor:
        """Return the mean similarity between each view's prediction and the other view's target."""
        self.move_target(progress)
        losses = []
        for online, other in (("view_0", "view_1"), ("view_1", "view_0")):
            prediction = self.trained["predictor"](self.project(self.trained, batch[online]))
            with torch.no_grad():
                target = self.project(self.target, batch[other])
            losses.append(self.similarity(prediction, target))
        return (losses[0] + losses[1]) / 2


METHODS: dict[str, Callable[..., Method]] = {
    "pirl_jigsaw": functools.partial(PIRL, task="jigsaw"),
    "pirl_rotation": functools.partial(PIRL, task="rotation"),
    "npid": functools.partial(PIRL, task="none"),
    "simclr": SimCLR,
    "moco_v2": MoCo,
    "byol": BYOL,
}
