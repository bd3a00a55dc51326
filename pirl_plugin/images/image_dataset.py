"""Views of anybody's images as a torch data set, and a batch of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

from pirl_plugin.images.shared import SharedArray
from pirl_plugin.images.sources import ImageSource, open_source
from pirl_plugin.views.pixels import image_generator, torch_seeded_generator

IGNORED_LABEL = -1
"""Index or label of an image that could not be read: neither loss nor memory bank sees it."""
_JOINED = frozenset({"patches"})
_SAMPLE = 8  # files that are looked for


class ViewsOfImage(Protocol):
    """What makes the views: ``JigsawViews``, ``RotationViews``, … or anything like them."""

    def __call__(self, image: Any, rng: np.random.Generator | None = None) -> dict[str, Any]:
        """Views of an image uint8 (3, H, W), every random number drawn from ``rng``."""

    def placeholder(self) -> dict[str, Any]:
        """Views of the same shapes for an image that could not be read."""


class ImageDataset(Dataset[dict[str, Any]]):
    """Views of images.

    After :meth:`set_epoch` the views are the same for a seed, an epoch and a row, whatever the
    workers. Without it they are drawn as torchvision's transforms draw, from torch's generator,
    and differ from pass to pass.

    Args:
        source: a folder of images, in subfolders or not; a file that lists images; several folders
            or images in a list; or any map-style data set whose items are PIL images, uint8
            tensors, or tuples or dictionaries that hold one.
        views: makes the views of an image.
        seed: of all draws after ``set_epoch``.
        key: of the image in an item of a data set; None for the first.

    Raises:
        FileNotFoundError: there is no such folder or list, or no file of a sample of those listed.
        ValueError: there are fewer than two images, or it is neither.

    Attributes:
        source: of the images; it has their ``labels()`` and ``num_unreadable``.

    Example:
        >>> from pirl_plugin.views.jigsaw import JigsawViews
        >>> from torch.utils.data import DataLoader
        >>> photos = [torch.randint(256, (3, 60, 80), dtype=torch.uint8) for _ in range(4)]
        >>> images = ImageDataset(photos, JigsawViews())
        >>> batch = next(iter(DataLoader(images, batch_size=2, collate_fn=collate_views)))
        >>> {name: tuple(values.shape) for name, values in batch.items()}
        {'images': (2, 3, 224, 224), 'patches': (18, 3, 64, 64), 'index': (2,), 'data_valid': (2,)}
    """

    def __init__(
        self, source: Any, views: ViewsOfImage, seed: int = 0, key: int | str | None = None
    ) -> None:
        if isinstance(views, type) or not callable(views) or not hasattr(views, "placeholder"):
            raise ValueError(f"views = {views!r}: expected views such as JigsawViews()")
        self.source: ImageSource = open_source(source, key=key)
        if isinstance(source, (str, os.PathLike)):
            _look_for_files(self.source)
        self.views = views
        self.seed = seed
        self._epoch = SharedArray(np.full(1, -1, np.int64))  # seen by workers that run, too

    def __len__(self) -> int:
        return len(self.source)

    def set_epoch(self, epoch: int) -> None:
        """Key the views on this number of the pass; call it before each pass.

        Raises:
            ValueError: it is not in [0, 2²⁴).
        """
        image_generator(self.seed, epoch, 0)  # raises if the epoch is invalid
        self._epoch.array[0] = epoch

    def __getitem__(self, row: int) -> dict[str, Any]:
        """Make the views of one image.

        Args:
            row: in [0, len).

        Returns:
            The views (and a pretext task's ``label``); ``index``, the row; and ``data_valid``,
            whether the image could be read. Where it could not, the views are black and index and
            label are −1.

        Raises:
            IndexError: there is no such row; none is counted from the end.
        """
        row = int(row)
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} images")
        pixels, is_valid = self.source[row]
        if not is_valid:
            views = self.views.placeholder()
            views.update({"label": IGNORED_LABEL} if "label" in views else {})
            return {**views, "index": IGNORED_LABEL, "data_valid": False}
        epoch = int(self._epoch.array[0])
        keyed = epoch >= 0
        rng = image_generator(self.seed, epoch, row) if keyed else torch_seeded_generator()
        return {**self.views(pixels, rng), "index": row, "data_valid": True}


def _look_for_files(source: ImageSource) -> None:
    """Refuse a source of whose files, in a sample, none exists: all its images would be black."""
    rows = sorted({number * (len(source) - 1) // (_SAMPLE - 1) for number in range(_SAMPLE)})
    files = [source.file_of(row) for row in rows]
    if not any(map(os.path.exists, files)) and os.path.isfile(source.path):
        raise FileNotFoundError(
            f"none of {len(files)} files looked at of those in {source.path} exists, the first "
            f"being {files[0]}: expected paths relative to the list's own folder, or from the root"
        )


def collate_views(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Collate dictionaries of views: the ``collate_fn`` of a ``DataLoader``.

    Args:
        samples: at least one, with the same keys: views (uint8: ``images`` (3, S, S), ``patches``
            (n, 3, P, P), ``rotated`` (3, S, S)), numbers, as ``index`` and ``label``, or anything.

    Returns:
        Views stacked, (B, …), but ``patches`` (n·B, 3, P, P) with the patches of an image together;
        numbers as a tensor (B,); anything else as a list. Where ``data_valid`` is false, ``index``
        and ``label`` are −1, so that neither loss nor memory bank sees the image.

    Raises:
        ValueError: there are no samples.

    Example:
        >>> image = torch.zeros(3, 8, 8, dtype=torch.uint8)
        >>> rows = [{"images": image, "index": r, "data_valid": r != 1} for r in range(3)]
        >>> batch = collate_views(rows)
        >>> batch["images"].shape, batch["index"].tolist()
        (torch.Size([3, 3, 8, 8]), [0, -1, 2])
    """
    if not samples:
        raise ValueError("there are no samples: expected at least one to make a batch of")
    batch: dict[str, Any] = {}
    for name, first in samples[0].items():
        values = [sample[name] for sample in samples]
        if isinstance(first, torch.Tensor):
            batch[name] = _stack(values).flatten(0, 1) if name in _JOINED else _stack(values)
        elif isinstance(first, (bool, int, float, np.number)):
            batch[name] = torch.tensor(values)
        else:
            batch[name] = values
    if "data_valid" in batch:
        for name in {"index", "label"} & batch.keys():
            batch[name] = batch[name].masked_fill(~batch["data_valid"].bool(), IGNORED_LABEL)
    return batch


def _stack(views: list[torch.Tensor]) -> torch.Tensor:
    """Stack; in a worker straight into shared memory, which saves a copy on the way out."""
    if get_worker_info() is None:
        return torch.stack(views)
    shape = (len(views), *views[0].shape)
    nbytes = len(views) * views[0].nbytes
    storage = views[0]._typed_storage()._new_shared(nbytes, device="cpu")
    return torch.stack(views, out=views[0].new(storage).resize_(shape))
