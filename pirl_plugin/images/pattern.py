"""Images below a folder, with a regular expression that says what their paths mean."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import NamedTuple

import numpy as np

from pirl_plugin.images.channel_files import ChannelFilesSource
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
from pirl_plugin.system.console import warn_once
from pirl_plugin.system.failures import Refused

_NAMED_GROUPS = ("channel", "group", "label")
_EXAMPLE = r"(?P<group>[^/]+)/.*_(?P<channel>B\d+)\.tif"
_MARK = "//"  # stands for the channel; relative paths do not contain it


class _Image(NamedTuple):
    """What a path says about its image."""

    group: str | None
    label: str | None


class PatternSource(ChannelFilesSource):
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
        images: dict[str, _Image] = {}
        channels_of_image: dict[str, set[str]] = {}
        endings = (*IMAGE_EXTENSIONS, ARRAY_EXTENSION)
        for found in find_images(folder, skipped, endings):
            name = found.replace(os.sep, "/")
            match = expression.fullmatch(name)
            if match is None or (has_channels and match["channel"] is None):
                skipped["paths that do not match the pattern"] += 1
                example = name
                continue
            meaning = match.groupdict()
            if has_channels:
                start, end = match.span("channel")
                name = f"{name[:start]}{_MARK}{name[end:]}"
                channels_of_image.setdefault(name, set()).add(match["channel"])
            image = _Image(meaning.get("group"), meaning.get("label"))
            if images.setdefault(name, image) != image:
                raise Refused(
                    f"`pattern` = {pattern}: the channels of {name.replace(_MARK, '*')} have "
                    f"different groups or labels. Separate them from the channel."
                )
        if skipped:
            warn_skipped(folder, skipped)
        if not images and "paths that do not match the pattern" in skipped:
            raise Refused(f"`pattern` = {pattern} matches no path in {folder}, such as {example}.")
        super().__init__(folder, images)
        self._has_labels = "label" in expression.groupindex
        self._labels = [image.label for image in images.values()]
        self._groups = None
        if "group" in expression.groupindex:
            self._groups = [image.group for image in images.values()]
        self.channel_names = natural_order(set().union(*channels_of_image.values()))
        sets = [channels_of_image.get(name, set()) for name in images]
        self._has_channel = np.array([[c in some for c in self.channel_names] for some in sets])
        if has_channels:
            warn_once(f"{folder}: channels {' '.join(self.channel_names)}")

    def channel_files(self, row: int) -> dict[str, str]:
        """Return channel → path for the files that an image has."""
        template = super().path_of(row)
        files = {}
        for name, is_present in zip(self.channel_names, self._has_channel[row], strict=True):
            if is_present:
                before, _, after = template.rpartition(_MARK)
                files[name] = f"{before}{name}{after}"
        return files

    def path_of(self, row: int) -> str:
        """Return an image's path, with ``*`` for the channel."""
        before, mark, after = super().path_of(row).rpartition(_MARK)
        return f"{before}*{after}" if mark else after

    def group_names(self) -> list[str | None] | None:
        """Return one group name per image; None if the user named no groups."""
        return self._groups

    def _find_classes(self) -> Classes:
        """Return the classes in the labels or, without these, the first-level subfolders."""
        if not self._has_labels:
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
    unknown = expression.groupindex.keys() - set(_NAMED_GROUPS)
    if unknown or not expression.groupindex:
        has = f"the unknown group {min(unknown)}" if unknown else "no named group"
        raise Refused(
            f"`pattern` = {pattern} has {has}. Name a channel, group or label, such as {_EXAMPLE}."
        )
    return expression
