"""Images on disk as a torch data set of views, for anybody's training loop."""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import Dataset

from pirl_plugin.images.shared_bytes import SharedInteger
from pirl_plugin.images.sources.base import ImageSource
from pirl_plugin.images.sources.registry import source_at
from pirl_plugin.utils.rows import evenly_spaced
from pirl_plugin.views.base import IGNORED_LABEL
from pirl_plugin.views.random import image_generator

_SAMPLE = 8  # files that are looked for


class ViewsOfImage(Protocol):
    """What makes the views: ``JigsawViews``, ``RotationViews``, … or anything like them."""

    def __call__(self, pixels: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
        """Views of an image uint8 (3, H, W), every random number drawn from ``rng``."""

    def placeholder(self) -> dict[str, torch.Tensor]:
        """Views of the same shapes for an image that could not be read."""


class ImageDataset(Dataset[dict[str, Any]]):
    """Views of images, the same for a seed, an epoch and a row, whatever the workers.

    Args:
        root_or_source: a folder of images, in subfolders or not; a list of images, as
            ``FileListSource`` reads it; or a source of images.
        views: makes the views of an image.
        seed: of all draws.

    Raises:
        FileNotFoundError: there is no such folder or list, or no file of a sample of those listed.
        ValueError: there are fewer than two images, or it is neither; or the views or the seed are
            none.

    Attributes:
        source: of the images; it has their ``labels()`` and ``num_unreadable``.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> from torch.utils.data import DataLoader
        >>> from pirl_plugin.images.collator import collate_views
        >>> from pirl_plugin.views.jigsaw import JigsawViews
        >>> folder = tempfile.TemporaryDirectory()
        >>> for name in "ab":
        ...     Image.new("RGB", (80, 60)).save(f"{folder.name}/{name}.png")
        >>> images = ImageDataset(folder.name, JigsawViews(), seed=0)
        >>> images.set_epoch(1)  # before each epoch
        >>> batch = next(iter(DataLoader(images, batch_size=2, collate_fn=collate_views)))
        >>> {name: tuple(values.shape) for name, values in batch.items()}
        {'images': (2, 3, 224, 224), 'patches': (18, 3, 64, 64), 'label': (2,), 'data_valid': (2,)}
        >>> folder.cleanup()
    """

    def __init__(
        self,
        root_or_source: str | os.PathLike[str] | ImageSource,
        views: ViewsOfImage,
        seed: int = 0,
    ) -> None:
        named = isinstance(root_or_source, (str, os.PathLike))
        if not named and not isinstance(root_or_source, ImageSource):
            raise ValueError(
                f"root_or_source is a {type(root_or_source).__name__}: expected a folder, a file "
                f"that lists images, or an ImageSource; write paths into a file, one a line"
            )
        if isinstance(views, type) or not callable(views) or not hasattr(views, "placeholder"):
            raise ValueError(
                f"views = {views!r}: expected what makes views; give it as JigsawViews()"
            )
        image_generator(seed, 0, 0)  # raises if the seed is invalid
        self.source: ImageSource = source_at(root_or_source) if named else root_or_source  # type: ignore[arg-type, assignment]
        if named:
            _look_for_files(self.source)
        self.views = views
        self.seed = seed
        self._epoch = SharedInteger()  # seen by workers that are running, too

    def __len__(self) -> int:
        return len(self.source)

    @property
    def epoch(self) -> int:
        """Number of the pass over the data."""
        return self._epoch.value

    def set_epoch(self, epoch: int) -> None:
        """Say which pass over the data comes next; call it before iterating over the loader.

        Raises:
            ValueError: it is no whole number in [0, 2²⁴).
        """
        image_generator(self.seed, epoch, 0)  # raises if the epoch is invalid
        self._epoch.value = epoch

    def __getitem__(self, row: int) -> dict[str, Any]:
        """Make the views of one image.

        Args:
            row: in [0, len).

        Returns:
            The views; ``label``, the row (or a pretext task's label); and ``data_valid``, whether
            the image could be read. Where it could not, the views are black and the label is −1.

        Raises:
            IndexError: there is no such row; none is counted from the end.
        """
        if not hasattr(row, "__index__") or not 0 <= row < len(self):
            raise IndexError(
                f"row {row!r} of {len(self)} images: expected 0 to {len(self) - 1}; give such a row"
            )
        pixels, is_valid = self.source[row]
        if is_valid:
            views = self.views(pixels, image_generator(self.seed, self.epoch, row))
        else:
            views = self.views.placeholder()
        sample = {"label": row, **views, "data_valid": is_valid}
        return sample if is_valid else {**sample, "label": IGNORED_LABEL}


def _look_for_files(source: ImageSource) -> None:
    """Refuse a source of whose files, in a sample, none exists: all its images would be black."""
    files = [source.file_of(row) for row in evenly_spaced(len(source), _SAMPLE)]
    if not any(map(os.path.exists, files)):
        raise FileNotFoundError(
            f"none of {len(files)} files looked at of those in {source.path} exists, the first "
            f"being {files[0]}: expected paths relative to the list's own folder, or from the "
            f"root; correct the list, or mount the folder of its files"
        )
