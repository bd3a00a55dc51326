"""The quickstart's methods."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """A pre-training method.

    Attributes:
        name: the method's name.
        overrides: overrides for ``pretrain/pirl/quick_jigsaw``.
        task: what the network learns, as a sentence.
        images_seen: number of images in a run with the default length; all methods take about
            equally long.
    """

    name: str
    overrides: tuple[str, ...]
    task: str
    images_seen: int


METHODS = {
    "jigsaw": Method(
        "PIRL",
        (),
        "It learns to map an image and its nine shuffled patches to the same embedding.",
        120_000,
    ),
    "rotation": Method(
        "PIRL (rotation)",
        ("+config/pirl/transforms=rotation",),
        "It learns to map an image and a rotated version of it to the same embedding.",
        160_000,
    ),
    "npid": Method(
        "NPID",
        ("+config/pirl/transforms=npid",),
        "It learns to tell each image from all others.",
        280_000,
    ),
}
