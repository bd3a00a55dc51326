"""A regular expression that gives meaning to image paths: channels, groups and labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from pirl_plugin.images.columns import Entry
from pirl_plugin.system.failures import Refused

_NAMED_GROUPS = {"channel", "group", "label"}
_EXAMPLE = r"(?P<group>[^/]+)/.*_(?P<channel>B\d+)\.tif"
_SKIPPED = "paths that do not match the pattern"


def read_pattern(pattern: str, paths: Iterable[str], skipped: Counter[str]) -> list[Entry]:
    r"""Apply a regular expression to paths.

    Paths are written with ``/``, and must match completely. The named groups give each path a
    meaning. Files that differ only in their ``channel`` are one image. Images with the same
    ``group`` belong together. ``label`` is the class, instead of the first folder.

    Args:
        pattern: the expression, such as ``(?P<group>[^/]+)/.*_(?P<channel>B\d+)\.tif``.
        paths: relative paths.
        skipped: counts other paths.

    Returns:
        The images. For one with a file per channel, the path has ``*`` for the channel.

    Raises:
        Refused: it is not an expression, has no named group or an unknown one, matches no path, or
            the channels of an image differ in group or label.
    """
    expression = _compile(pattern)
    has_channels = "channel" in expression.groupindex
    entries: dict[str, Entry] = {}
    files: dict[str, dict[str, str]] = {}  # image → channel → path
    example = ""
    for path in paths:
        match = expression.fullmatch(path)
        if match is None or (has_channels and match["channel"] is None):
            skipped[_SKIPPED] += 1
            example = path
            continue
        image = path
        channels: dict[str, str] = {}
        if has_channels:
            start, end = match.span("channel")
            image = f"{path[:start]}*{path[end:]}"
            channels = files.setdefault(image, {})
            channels[match["channel"]] = path
        meaning = match.groupdict()
        entry = Entry(image, meaning.get("label"), meaning.get("group"), channels)
        if entries.setdefault(image, entry) != entry:
            raise Refused(
                f"`pattern` = {pattern}: the channels of {image} have different groups or labels. "
                f"Separate them from the channel."
            )
    if example and not entries:
        raise Refused(f"`pattern` = {pattern} matches no path, such as {example}.")
    return list(entries.values())


def _compile(pattern: str) -> re.Pattern[str]:
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
