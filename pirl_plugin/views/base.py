"""The base class for views, and views for NPID, with only the image I (Wu et al. 2018)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from pirl_plugin.views.kernels import render
from pirl_plugin.views.photometric import Photometric, check_limits
from pirl_plugin.views.pixels import as_generator, as_pixels, random_resized_crop

_USUAL_SCALE = (0.08, 1.0)
AREA_SHARES = "the smallest and the largest fraction of the image's area, such as [0.08, 1.0]"
"""The expected value of a crop's scale, for messages."""
_CORNER = np.zeros((1, 2), np.int32)
_Self = TypeVar("_Self", bound="Views")


class Views(ABC):
    """A transform from an image to a dictionary of views.

    For new views, write a subclass that implements ``_make``.

    Args:
        image_size: side of I in pixels.
        image_scale: smallest and largest crop area for I, as fractions of the image.
        **photometric: options for :class:`~pirl_plugin.views.photometric.Photometric`; each view
            draws its own parameters.

    Raises:
        TypeError: an argument is unknown.
        ValueError: an argument has the wrong type or is out of range.
    """

    def __init__(
        self,
        image_size: int = 224,
        image_scale: Sequence[float] = _USUAL_SCALE,
        **photometric: Any,
    ) -> None:
        self.image_size = image_size
        self.image_scale = check_limits("image_scale", image_scale, 1, AREA_SHARES)
        self.photometric = Photometric(**photometric)

    def __call__(
        self, image: Any, rng: np.random.Generator | None = None
    ) -> dict[str, torch.Tensor]:
        """Create the views for one image.

        Args:
            image: a PIL image, an array (H, W, C) or a tensor (C, H, W), with C >= 1 channels in
                any real type.
            rng: random generator (default: seeded from torch's, as in torchvision's transforms).

        Returns:
            Views by name, with the image's channels and dtype. Pretext tasks add ``label``, the
            number of the transformation.

        Raises:
            ValueError: ``image`` has the wrong type or shape.
        """
        return self._make(as_pixels(image), as_generator(rng))

    @abstractmethod
    def _make(self, pixels: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        """Return the views for ``pixels``; draw all random numbers from ``rng``."""

    @property
    def size_to_decode_for(self) -> int:
        """Image view size, in pixels, that needs as much resolution by default as these views."""
        return max(self.image_size, size_of_usual_crops(self.image_size, self.image_scale))

    @classmethod
    def from_entry(cls: type[_Self], entry: Mapping[str, Any]) -> _Self:
        """Create views from an entry in a config's ``TRANSFORMS``.

        ``name`` and ``indices`` are for VISSL. ``photometric`` may hold several photometric
        options; those outside it take precedence.

        Example:
            >>> entry = {"name": "PIRLImage", "photometric": {"hue": 0.1}}
            >>> ImageViews.from_entry(entry).photometric.hue
            0.1
        """
        parameters = {**(entry.get("photometric") or {}), **entry}
        for key in ("name", "indices", "photometric"):
            parameters.pop(key, None)
        return cls(**parameters)

    def _standard_view(self, pixels: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """Return an augmented random resized crop: (C, S, S)."""
        crop = random_resized_crop(pixels, self.image_scale, self.image_size, rng)
        return render(crop, _CORNER, self.photometric.sample(rng, 1, crop), self.image_size)[0]


class ImageViews(Views):
    """Only I, for NPID (λ = 0). Arguments as in :class:`RotationViews`.

    With equal generators, I is the same in all views.

    Example:
        >>> views = ImageViews(image_size=32)
        >>> sample = views(torch.zeros(3, 60, 80, dtype=torch.uint8))
        >>> {name: tuple(view.shape) for name, view in sample.items()}
        {'images': (3, 32, 32)}
    """

    def _make(self, pixels: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        return {"images": self._standard_view(pixels, rng)}


def warm_up() -> None:
    """Compile the kernels, or load them from numba's cache on disk.

    The first call on a machine takes seconds, later ones a fraction of a second. Call it before
    starting workers, so that they need not compile.
    """
    ImageViews(image_size=4)(torch.zeros(3, 4, 4, dtype=torch.uint8), np.random.default_rng(0))


def size_of_usual_crops(size: int, scale: tuple[float, float]) -> int:
    """Return the side of crops with the usual scale that need the same image resolution.

    The smaller a crop's area, the more it is enlarged: 2 % of the area need twice the resolution
    that 8 %, the usual smallest area, need.

    Args:
        size: side of the crops in pixels.
        scale: smallest and largest crop area, as fractions of the image.

    Example:
        >>> size_of_usual_crops(224, (0.02, 1.0))
        448
    """
    return round(size * math.sqrt(_USUAL_SCALE[0] / scale[0]))
