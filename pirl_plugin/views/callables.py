"""Functions of an image as views, such as torchvision's transforms."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from PIL import Image

from pirl_plugin.system.failures import check
from pirl_plugin.views.pixels import as_generator, as_image, as_pixels, is_rgb


class CallableViews:
    """Views from a function of a PIL image.

    If the function has a parameter ``rng``, it gets the NumPy generator. Otherwise it draws from
    the global generators of torch, NumPy and Python. To make its draws reproducible, ``rng`` seeds
    these for the call.

    Args:
        function: returns a dictionary of tensors or images, or a single one, named ``images``.

    Raises:
        ValueError: it is not a function, for example because it is a class.

    Example:
        >>> brightest = CallableViews(lambda image: torch.tensor(image.getextrema()[0][1]))
        >>> brightest(torch.full((3, 2, 2), 7, dtype=torch.uint8), None)
        {'images': tensor(7)}
    """

    size_to_decode_for = 65_535
    """As for :class:`~pirl_plugin.views.base.Views`: the function may use any pixel, and no JPEG is
    larger."""

    def __init__(self, function: Callable[..., Any]) -> None:
        is_function = callable(function) and not isinstance(function, type)
        check("views", function, is_function, "a function, or an instance such as JigsawViews()")
        self.function = function
        self._takes_generator = False
        with suppress(TypeError, ValueError):  # some built-in functions have no signature
            self._takes_generator = "rng" in inspect.signature(function).parameters

    def __call__(
        self, pixels: torch.Tensor, rng: np.random.Generator | None = None
    ) -> dict[str, Any]:
        """Create the views for one image.

        Args:
            pixels: (C, H, W). RGB in uint8 is passed on as a PIL image, all others as this tensor.
            rng: random generator (default: the global generators).
        """
        image = as_image(pixels) if is_rgb(pixels) else pixels
        if self._takes_generator:
            views = self.function(image, rng=as_generator(rng))
        elif rng is None:
            views = self.function(image)
        else:
            with _seeded(int(rng.integers(2**32))):
                views = self.function(image)
        by_name = views if isinstance(views, Mapping) else {"images": views}
        return {
            name: as_pixels(view) if isinstance(view, Image.Image) else view
            for name, view in by_name.items()
        }


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of torch (CPU), NumPy and Python, and restore them afterward."""
    numpy_state = np.random.get_state()
    python_state = random.getstate()
    try:
        with torch.random.fork_rng(devices=()):
            torch.default_generator.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            yield
    finally:
        np.random.set_state(numpy_state)
        random.setstate(python_state)
