"""What identifies images: their names, the sizes and times of their files, and their content.

Files of features, copies and indexes of tars compare it, so that images that were replaced under
their names are noticed. A resumed run compares only the paths, because a copy of the images on a
node's own disk may have other times.
"""

from __future__ import annotations

import os

from pirl_plugin.images.source import ImageSource
from pirl_plugin.system.files import digest_of


def content_stamp(path: str | os.PathLike[str]) -> str:
    """Return size and time of change (ns) of a file; ``missing`` if there is none.

    It follows links.
    """
    try:
        state = os.stat(path)
    except OSError:
        return "missing"
    return f"{state.st_size} {state.st_mtime_ns}"


def names_digest(source: ImageSource) -> str:
    """Return the digest of the names of a source's images, relative to its folder, in order."""
    return digest_of(map(source.name_of, range(len(source))))


def content_digest(source: ImageSource) -> str:
    """Return the digest of sizes and times of a source's images, in order.

    For tars, Arrow and parquet, they are those of these files. A library's data set in memory has
    none: only its length is known, by its names.
    """
    return digest_of(map(content_stamp, source.files()))
