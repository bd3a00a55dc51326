"""The quickstart's methods."""

from __future__ import annotations

from dataclasses import dataclass

from pirl_plugin.quickstart.images import IMAGE_SIZE
from pirl_plugin.views.base import ImageViews, Views
from pirl_plugin.views.jigsaw import JigsawViews
from pirl_plugin.views.rotation import RotationViews

_SCALE = (0.2, 1.0)


@dataclass(frozen=True)
class Method:
    """A pre-training method.

    Attributes:
        name: the method's name.
        overrides: overrides for ``pretrain/pirl/quick_jigsaw``.
        views: views as in training.
        task: what the network learns, as a sentence.
        images_seen: number of images in a run with the default length; all methods take about
            equally long.
    """

    name: str
    overrides: tuple[str, ...]
    views: Views
    task: str
    images_seen: int


METHODS = {
    "jigsaw": Method(
        "PIRL",
        (),
        JigsawViews(IMAGE_SIZE, patches_crop_size=96, patch_size=24, image_scale=_SCALE),
        "It learns to map an image and its nine shuffled patches to the same embedding.",
        120_000,
    ),
    "rotation": Method(
        "PIRL (rotation)",
        ("+config/pirl/transforms=rotation",),
        RotationViews(IMAGE_SIZE, _SCALE),
        "It learns to map an image and a rotated version of it to the same embedding.",
        160_000,
    ),
    "npid": Method(
        "NPID",
        ("+config/pirl/transforms=npid",),
        ImageViews(IMAGE_SIZE, _SCALE),
        "It learns to tell each image from all others.",
        280_000,
    ),
}
