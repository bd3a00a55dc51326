"""Image views as a torch data set, and the collate function for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, default_collate

from pirl_plugin.images.classes import NoLabels
from pirl_plugin.images.columns import Columns
from pirl_plugin.images.map_source import Sample
from pirl_plugin.images.opening import open_source
from pirl_plugin.images.reading import RGB, Reading
from pirl_plugin.images.source import ImageSource
from pirl_plugin.system.console import warn
from pirl_plugin.views.base import Views
from pirl_plugin.views.callables import CallableViews
from pirl_plugin.views.pixels import image_generator

IGNORED_LABEL = -1
"""Index or label of an unreadable image, which loss and memory bank ignore."""
JOINED_VIEWS = frozenset({"patches"})
"""Views with several patches per image, which a batch joins in one tensor."""


class ImageDataset(Dataset[dict[str, torch.Tensor]]):
    r"""Views of images.

    After :meth:`set_epoch`, views depend only on seed, epoch and row, not on the workers. Without
    it, they come from torch's generator, as in torchvision's transforms.

    Args:
        source: a folder of images, with or without subfolders; a file that lists images; a list of
            paths; or any map-style data set. Items are PIL images, arrays (H, W, C) or tensors
            (C, H, W) of any real type, or tuples or dictionaries that contain one.
        views: ``JigsawViews()`` or similar, or any function that takes a PIL image, such as a
            torchvision transform, or a PIL image and a numpy generator. It gets the image at full
            size, and returns a dictionary of tensors, or one tensor, which is then named
            ``images``.
        seed: seed for the views, used with ``set_epoch``.
        image_column: name or position of the image in an item, or name of the column with images or
            paths; None: ``image`` or a similar name, or else the only image.
        label_column: name of the label column; None: ``label`` or a similar name.
        rgb: convert images with one or four channels, or 16 bits, to RGB in uint8. Otherwise images
            keep the most common channels and dtype; ordinary image files are RGB in any case.
        group_column: name of the column with groups, such as patients or plates; None: no groups.
        pattern: for a folder, a regular expression for the relative paths with ``/``, such as
            ``(?P<group>[^/]+)/.*_(?P<channel>B\d+)\.tif``: see
            :func:`~pirl_plugin.images.pattern.read_pattern`.
        nodata: the value of missing pixels, besides NaN in float images and the value that a TIFF
            names. Missing pixels do not count in statistics. When an image is read, its channel's
            mean replaces them: the mean of the images, or the one in a trunk's record, see
            :class:`~pirl_plugin.PIRL`.

    Raises:
        FileNotFoundError: the folder or list does not exist, or the files in the list do not.
        ValueError: there is no image, or the data are a stream.

    Attributes:
        source: the image source; it has ``labels()`` and ``unreadable_paths()``.
        pixel_type: channels and dtype of the images; others are unreadable.
        reading: how images are read, with what replaces missing pixels.

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
        self,
        source: Any,
        views: Views | Callable[..., Any],
        seed: int = 0,
        image_column: int | str | None = None,
        label_column: str | None = None,
        rgb: bool = False,
        group_column: str | None = None,
        pattern: str | None = None,
        nodata: float | None = None,
    ) -> None:
        columns = Columns(image_column, label_column, group_column, pattern)
        self.source: ImageSource = open_source(source, columns=columns)
        self.views: Views | CallableViews
        self.views = views if isinstance(views, Views) else CallableViews(views)
        if nodata is not None:
            self.source.nodata = nodata
        self.pixel_type = self.source.type_to_read(rgb)
        self.reading = Reading(self.pixel_type, rgb, self.source.nodata)
        if nodata is not None:  # now, rather than in each worker
            self.reading = self.reading._replace(mean=self.source.statistics(self.reading).mean)
        if self.pixel_type != RGB and isinstance(views, Views):
            listed = views.photometric.channel_options()
            warn(f"{self.pixel_type}: the views use {listed}, not color options.")
        self.seed = seed
        # Shared with loader workers, which may live for several epochs; −1: set_epoch was not
        # called.
        self._epoch = torch.tensor(-1).share_memory_()

    def __len__(self) -> int:
        return len(self.source)

    def labels(self) -> torch.Tensor | None:
        """Return one class per image, int64 (N,), −1 if unlabeled; None if there are no classes."""
        try:
            return torch.as_tensor(self.source.labels())
        except NoLabels:
            return None

    def groups(self) -> torch.Tensor | None:
        """Return one group per image, int64 (N,), for example for scikit-learn's ``GroupKFold``.

        None without ``group_column`` and without a pattern that has a ``group``.
        """
        groups = self.source.groups()
        return None if groups is None else torch.as_tensor(groups)

    def set_epoch(self, epoch: int) -> None:
        """Make views depend only on seed, epoch and row. Call this before each epoch.

        No loader iterator may be active: its workers read ahead, using the previous epoch.
        """
        self._epoch.fill_(epoch)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        """Make the views of one image.

        Args:
            row: in [0, len).

        Returns:
            The views (and a pretext task's ``label``); ``index``, the row; and ``data_valid``,
            whether the image is readable. If not, the views are zeros, and index and label
            are −1.

        Raises:
            IndexError: the row does not exist; negative rows are not supported.
        """
        row = int(row)
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} is out of range for {len(self)} images")
        pixels, is_valid = self.source.load(row, self.views.size_to_decode_for, self.reading)
        if is_valid:
            epoch = int(self._epoch)
            rng = None if epoch < 0 else image_generator(self.seed, epoch, row)
            views = self.views(pixels, rng)
        else:
            views = self.blank_views()
        index = torch.tensor(row if is_valid else IGNORED_LABEL)
        return Sample(views, index=index, data_valid=torch.tensor(is_valid))

    def blank_views(self) -> dict[str, torch.Tensor]:
        """Return zeros in the shapes of a gray image's views, and the label −1."""
        views = self.views(self.pixel_type.gray, np.random.default_rng(0))
        blank = {
            name: torch.zeros_like(view) if isinstance(view, torch.Tensor) else view
            for name, view in views.items()
        }
        if "label" in blank:
            blank["label"] = IGNORED_LABEL
        return blank


def collate_views(samples: Sequence[Any]) -> Any:
    """Collate dictionaries of views: the ``collate_fn`` for a ``DataLoader``.

    Samples may also be tuples that begin with such a dictionary, such as (views, class) from a
    torchvision data set with views as its transform.

    Args:
        samples: at least one, with the same keys: views (``images`` (C, S, S), ``patches``
            (n, C, P, P), ``transformed`` (C, S, S)), numbers (``index``, ``label``), or other
            values.

    Returns:
        What torch's ``default_collate`` returns: views stacked to (B, …), and numbers as a tensor
        (B,); but ``patches`` have shape (n·B, C, P, P), with an image's patches together. If
        ``data_valid`` is false, ``index`` and ``label`` are −1, and loss and memory bank ignore the
        image.

    Example:
        >>> image = torch.zeros(3, 8, 8, dtype=torch.uint8)
        >>> rows = [{"images": image, "index": r, "data_valid": r != 1} for r in range(3)]
        >>> batch = collate_views(rows)
        >>> batch["images"].shape, batch["index"].tolist()
        (torch.Size([3, 3, 8, 8]), [0, -1, 2])
    """
    batch = default_collate(list(samples))  # in a worker, directly into shared memory
    views: Any = batch if isinstance(batch, Mapping) else batch[0]
    for name in JOINED_VIEWS & views.keys():
        views[name] = views[name].flatten(0, 1)
    if "data_valid" in views:
        for name in {"index", "label"} & views.keys():
            views[name] = views[name].masked_fill(~views["data_valid"].bool(), IGNORED_LABEL)
    return batch
