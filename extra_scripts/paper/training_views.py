"""The views used to train a checkpoint: patches or rotated images, and the image."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from run_config import run_config

from pirl_plugin.images import names
from pirl_plugin.views.jigsaw import JigsawViews, RotationJigsawViews
from pirl_plugin.views.rotation import RotationViews

Views = JigsawViews | RotationViews
_VIEWS: dict[str, type[JigsawViews] | type[RotationViews]] = {
    names.JIGSAW: JigsawViews,
    names.ROTATION: RotationViews,
    names.ROTATION_JIGSAW: RotationJigsawViews,
    names.PREDICT_JIGSAW: JigsawViews,  # adds the image, which the task does not use
    names.PREDICT_ROTATION: RotationViews,
}


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
