"""The columns of images and of labels in tables and data sets: by known names, or as chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pirl_plugin.system.failures import Refused

_IMAGE_NAMES = (
    "image", "img", "photo", "picture", "path", "file", "filename", "file_name", "filepath",
    "file_path", "image_path", "img_path", "image_file", "img_file", "image_name", "img_name",
)  # fmt: skip
_LABEL_NAMES = ("label", "labels", "class", "target")


@dataclass(frozen=True)
class Columns:
    """The user's choice of columns; None: the first of the known names that exists.

    Attributes:
        image: name of the column of images, or of their paths; of tuples, a position.
        label: name of the column of labels.
    """

    image: int | str | None = None
    label: str | None = None

    def find_image(self, columns: Sequence[str], place: str) -> Any:
        """Return the column of images among columns; None if no name is known.

        Raises:
            Refused: the chosen column does not exist.
        """
        return _find(columns, self.image, _IMAGE_NAMES, "image", place)

    def find_label(self, columns: Sequence[str], place: str) -> Any:
        """Return the column of labels among columns; None if no name is known.

        Raises:
            Refused: the chosen column does not exist.
        """
        return _find(columns, self.label, _LABEL_NAMES, "label", place)


BY_NAME = Columns()
"""The first of the known names."""


def choose(kind: str, columns: Iterable[str]) -> str:
    """Return the end of a sentence that says how to choose a column.

    Args:
        kind: ``image`` or ``label``.
        columns: the columns to choose from.
    """
    names = _IMAGE_NAMES if kind == "image" else _LABEL_NAMES
    listed = ", ".join(map(str, columns))
    return (
        f"found the columns {listed}: expected one of {', '.join(names)}; choose one with "
        f"{kind}_column (--{kind}-column; config.DATA.TRAIN.{kind.upper()}_COLUMN)"
    )


def _find(
    columns: Sequence[str], chosen: int | str | None, names: Sequence[str], kind: str, place: str
) -> int | str | None:
    if chosen is not None:
        if chosen not in columns:
            raise Refused(
                f"{kind}_column = {chosen}: expected a column of {place}, which has "
                f"{', '.join(columns)}"
            )
        return chosen
    by_lower_case = {column.lower(): column for column in reversed(columns)}
    return next((by_lower_case[name] for name in names if name in by_lower_case), None)
