"""Concatenations and subsets of sources, like torch's ``ConcatDataset`` and ``Subset``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain

import numpy as np

from pirl_plugin.images.classes import Classes, name_classes
from pirl_plugin.images.columns import Entry
from pirl_plugin.images.decode import Decoded
from pirl_plugin.images.source import ImageSource


class JoinedSource(ImageSource):
    """Images from one or more sources, which read them.

    Args:
        path: name for the images in messages.
        parts: the sources.
        rows: the rows to use, counted through all parts; None: all rows, in order.
    """

    def __init__(
        self, path: str, parts: Sequence[ImageSource], rows: Sequence[int] | None = None
    ) -> None:
        self._parts = parts
        self._starts = np.array([0, *accumulate(map(len, parts))])
        total = int(self._starts[-1])
        self._rows = np.arange(total) if rows is None else np.array(rows, np.int64)
        groups = list(chain.from_iterable(part.group_names for part in parts))
        super().__init__(path, (Entry(str(row), group=groups[row]) for row in self._rows))
        self.channel_names = parts[0].channel_names
        self.nodata = next((part.nodata for part in parts if part.nodata is not None), None)

    def _locate(self, row: int) -> tuple[ImageSource, int]:
        """Return an image's source, and its row there."""
        joined_row = int(self._rows[row])
        part = int(np.searchsorted(self._starts, joined_row, "right")) - 1
        return self._parts[part], joined_row - int(self._starts[part])

    def _read_image(self, row: int, scaled_to: int) -> Decoded:
        part, row = self._locate(row)
        return part._read_image(row, scaled_to)

    def path_of(self, row: int) -> str:
        """Return an image's path."""
        part, row = self._locate(row)
        return part.path_of(row)

    def name_of(self, row: int) -> str:
        """Return an image's name, relative to its own source's folder."""
        part, row = self._locate(row)
        return part.name_of(row)

    def channel_files(self, row: int) -> dict[str, str]:
        """Return channel → path for the files that an image has."""
        part, row = self._locate(row)
        return part.channel_files(row)

    def files(self) -> list[str]:
        """Return the file paths in all parts."""
        return list(chain.from_iterable(part.files() for part in self._parts))

    def _find_classes(self) -> Classes:
        """Return the classes in all parts, matched by name.

        Raises:
            NoLabels: a part has no labels.
        """
        labels: list[str | None] = []
        for part in self._parts:
            names = np.array([*part.classes, None], object)  # the last entry is for NO_CLASS, −1
            labels += names[part.labels()].tolist()
        order = list(chain.from_iterable(part.classes for part in self._parts))
        return name_classes([labels[row] for row in self._rows], order)
