"""The adapter of the views to VISSL: each views class as a transform of a whole sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from pirl_plugin.views.base import ImageViews, Views
from pirl_plugin.views.jigsaw import JigsawTask, JigsawViews, RotationJigsawViews
from pirl_plugin.views.pixels import image_generator
from pirl_plugin.views.rotation import RotationTask, RotationViews
from pirl_plugin.vissl.adapters.source import SourceImage
from pirl_plugin.vissl.bases import ClassyTransform

_Self = TypeVar("_Self", bound="_PIRLTransform")


class _PIRLTransform(ClassyTransform):
    """Replace a sample's image by the views of one task.

    It takes the whole sample (``data``, ``data_idx``, ``data_valid``, ``label``), because the
    draws are keyed on the image's row and an unreadable image gets black views.

    Args:
        **parameters: of the views class, by keyword.

    Raises:
        ValueError: for a parameter that is unknown or out of range.
    """

    views_class: ClassVar[type[Views]]

    def __init__(self, **parameters: Any) -> None:
        self.views = self.views_class.from_entry(parameters)

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Put the dict of views into ``sample["data"]``.

        Raises:
            ValueError: the image does not come from one of our sources.
        """
        source = sample["data"][0]
        if not isinstance(source, SourceImage):
            raise ValueError(
                f"{type(self).__name__} got a {type(source).__name__}: expected an image of a "
                f"pirl_disk_* source; set config.DATA.TRAIN.DATA_SOURCES, and put "
                f"{type(self).__name__} first in config.DATA.TRAIN.TRANSFORMS"
            )
        if sample["data_valid"][0] == 1:
            rng = image_generator(source.seed, source.epoch, int(sample["data_idx"][0]))
            sample["data"] = self.views(source.pixels, rng)
        else:
            sample["data"] = self.views.placeholder()
        return sample

    @classmethod
    def from_config(cls: type[_Self], config: Mapping[str, Any]) -> _Self:
        """Make the transform of a YAML entry."""
        return cls(**config)


class PIRLJigsaw(_PIRLTransform):
    """``JigsawViews`` as a transform."""

    views_class = JigsawViews


class PIRLRotation(_PIRLTransform):
    """``RotationViews`` as a transform."""

    views_class = RotationViews


class PIRLRotationJigsaw(_PIRLTransform):
    """``RotationJigsawViews`` as a transform."""

    views_class = RotationJigsawViews


class PIRLImage(_PIRLTransform):
    """``ImageViews`` as a transform: NPID."""

    views_class = ImageViews


class PredictJigsaw(_PIRLTransform):
    """``JigsawTask`` as a transform: the label becomes the permutation's number."""

    views_class = JigsawTask


class PredictRotation(_PIRLTransform):
    """``RotationTask`` as a transform: the label becomes the number of quarter turns."""

    views_class = RotationTask
