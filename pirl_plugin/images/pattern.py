"""Images below a folder, with a regular expression that says what their paths mean."""

from __future__ import annotations

import os
import re
from collections import Counter

from pirl_plugin.images.classes import Classes, name_classes, natural_order
from pirl_plugin.images.folders import (
    ARRAY_EXTENSION,
    IMAGE_EXTENSIONS,
    check_folder,
    classes_of_folders,
    find_images,
    warn_skipped,
)
from pirl_plugin.images.names import DISK_FOLDER
from pirl_plugin.images.source import ImageSource
from pirl_plugin.system.console import warn_once
from pirl_plugin.system.failures import Refused

_NAMED_GROUPS = {"channel", "group", "label"}
_EXAMPLE = r"(?P<group>[^/]+)/.*_(?P<channel>B\d+)\.tif"
_SKIPPED = "paths that do not match the pattern"


class PatternSource(ImageSource):
    r"""The images below a folder whose relative paths match a regular expression.

    Paths are written with ``/``, and must match completely. The named groups give each path a
    meaning. Files that differ only in their ``channel`` are one image. Images with the same
    ``group`` belong together. ``label`` is the class, instead of the first folder. Other paths are
    skipped and counted.

    Args:
        path: the folder.
        pattern: the expression, such as ``(?P<group>[^/]+)/.*_(?P<channel>B\d+)\.tif``.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: the expression is wrong or has no such group, or no path matches it.
    """

    kind = "folder with a pattern"
    registered_name = DISK_FOLDER

    def __init__(self, path: str | os.PathLike[str], pattern: str) -> None:
        folder = os.fspath(path)
        expression = compile_pattern(pattern)
        check_folder(folder)
        has_channels = "channel" in expression.groupindex
        skipped: Counter[str] = Counter()
        meanings: dict[str, dict[str, str | None]] = {}  # image → named group → text
        files: dict[str, dict[str, str]] = {}  # image → channel → path
        for name in find_images(folder, skipped, (*IMAGE_EXTENSIONS, ARRAY_EXTENSION)):
            match = expression.fullmatch(name)
            meaning = match.groupdict() if match else {}
            channel = meaning.pop("channel", None)
            if match is None or (has_channels and channel is None):
                skipped[_SKIPPED] += 1
                example = name
                continue
            image = name
            if channel is not None:
                start, end = match.span("channel")
                image = f"{name[:start]}*{name[end:]}"
                files.setdefault(image, {})[channel] = name
            if meanings.setdefault(image, meaning) != meaning:
                raise Refused(
                    f"`pattern` = {pattern}: the channels of {image} have different groups or "
                    f"labels. Separate them from the channel."
                )
        if skipped:
            warn_skipped(folder, skipped)
        if not meanings and _SKIPPED in skipped:
            raise Refused(f"`pattern` = {pattern} matches no path in {folder}, such as {example}.")
        columns: dict[str, list[str | None]] = {}
        for column in expression.groupindex.keys() - {"channel"}:
            columns[column] = [meaning[column] for meaning in meanings.values()]
        self._labels = columns.get("label")
        super().__init__(folder, meanings, None, columns.get("group", ()), list(files.values()))
        if files:
            warn_once(f"{folder}: channels {' '.join(self.channel_names)}")

    def _find_classes(self) -> Classes:
        """Return the classes in the labels or, without these, the first-level subfolders."""
        if self._labels is None:
            return classes_of_folders(self._images)
        return name_classes(self._labels, order=natural_order(filter(None, self._labels)))


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression, and check its named groups.

    Raises:
        Refused: it is not an expression, or has no named group or an unknown one.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise Refused(f"`pattern` = {pattern} is not a regular expression: {error}.") from None
    unknown = expression.groupindex.keys() - _NAMED_GROUPS
    if unknown or not expression.groupindex:
        has = f"the unknown group {min(unknown)}" if unknown else "no named group"
        raise Refused(
            f"`pattern` = {pattern} has {has}. Name a channel, group or label, such as {_EXAMPLE}."
        )
    return expression
