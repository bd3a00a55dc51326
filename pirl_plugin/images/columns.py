"""What a source knows about each image, and the columns or pattern that it is read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from pirl_plugin.system.failures import Refused

_NAMES = {
    "image": (
        "image", "img", "photo", "picture", "path", "file", "filename", "file_name", "filepath",
        "file_path", "image_path", "img_path", "image_file", "img_file", "image_name", "img_name",
    ),
    "label": ("label", "labels", "class", "target"),
    "group": (),
}  # fmt: skip


class Entry(NamedTuple):
    """An image in a source.

    Attributes:
        image: path, relative to the source's root.
        label: text, a number or a boolean; None: unlabeled.
        group: name of a group of images that belong together; None: the image belongs to none.
        channels: for an image with one file per channel, channel → path.
    """

    image: str
    label: Any = None
    group: str | None = None
    channels: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Columns:
    """The user's choice of columns; None selects the first recognized name.

    Attributes:
        image: name of the column with images or paths; for tuples, a position.
        label: name of the column with labels.
        group: name of the column with groups; None: no images belong together.
        pattern: regular expression whose named groups are a folder's columns, see
            :func:`~pirl_plugin.images.pattern.read_pattern`.
    """

    image: int | str | None = None
    label: str | None = None
    group: str | None = None
    pattern: str | None = None

    def find(
        self, kind: str, columns: Sequence[str], context: str, of_type: Sequence[Any] = ()
    ) -> Any:
        """Return a column, or None if no name is recognized.

        Args:
            kind: ``image``, ``label`` or ``group``.
            columns: the columns to choose from.
            context: where the columns come from, for messages.
            of_type: columns of the matching type; a single one is used if no name is recognized.

        Raises:
            Refused: the chosen column does not exist.
        """
        chosen = getattr(self, kind)
        if chosen is not None:
            if chosen not in columns:
                raise Refused(
                    f"`{kind}_column` = {chosen} is not a column of {kind}s in {context}. Choose "
                    f"one of {', '.join(columns)}."
                )
            return chosen
        by_lower_case = {column.lower(): column for column in reversed(columns)}
        for name in _NAMES[kind]:
            if name in by_lower_case:
                return by_lower_case[name]
        return of_type[0] if len(of_type) == 1 else None


BY_NAME = Columns()
"""The first of the recognized names."""


def column_hint(kind: str, columns: Iterable[str]) -> str:
    """Return a message that lists the columns, and how to choose one.

    Args:
        kind: ``image`` or ``label``.
        columns: the columns to choose from.
    """
    listed = ", ".join(map(str, columns))
    return (
        f"None of the columns {listed} has a known name, such as {', '.join(_NAMES[kind][:4])}. "
        f"Choose one as `{kind}_column`."
    )
