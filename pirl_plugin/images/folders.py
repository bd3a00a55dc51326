"""Find the image files below a folder, in a fixed order."""

from __future__ import annotations

import functools
import itertools
import os
from collections import Counter
from collections.abc import Iterator

from PIL import Image

import pirl_plugin.images.decode  # noqa: F401 (registers PIL's opener of HEIC)

_EXTENSIONS = (
    ".jpg", ".jpeg", ".jfif", ".jpe", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp",
    ".gif", ".avif", ".jp2", ".j2k", ".jpx", ".jpf", ".jpc", ".heic", ".heif", ".hif",
)  # fmt: skip
_SYSTEM = frozenset({"lost+found", "@eadir", "__macosx", "$recycle.bin"})


@functools.cache
def image_extensions() -> tuple[str, ...]:
    """Return the extensions that this PIL reads, in lower case and with their dot."""
    known = Image.registered_extensions()
    return tuple(extension for extension in _EXTENSIONS if extension in known)


def find_images(folder: str, skipped: Counter[str] | None = None) -> Iterator[str]:
    """Find the images below a folder, by extension, in a fixed order.

    The images of the folder itself come first, then the images of each first-level subfolder (a
    class), by name. Within a class, folders are sorted by path and files by name, as in
    torchvision's ``ImageFolder``. Hidden names, system folders (``lost+found``, ``@eaDir``, …) and
    folders without permission are skipped. Links to folders are followed, unless they lead to a
    folder that contains them.

    Args:
        folder: an existing folder.
        skipped: counts skipped files by extension and skipped folders by name, during the walk.

    Yields:
        Paths relative to ``folder``.

    Raises:
        OSError: ``folder`` cannot be listed, or a subfolder for another reason than permission.
    """
    skipped = Counter() if skipped is None else skipped
    extensions = image_extensions()
    start = len(os.path.join(folder, ""))
    top = next(_walk(folder, skipped))
    walks = (sorted(_walk(os.path.join(folder, name), skipped)) for name in top[1])
    for walk in itertools.chain([[top]], walks):
        for path, _, names in walk:
            for name in sorted(names):
                if name.lower().endswith(extensions) and not name.startswith("."):
                    yield os.path.join(path, name)[start:]
                elif not name.startswith("."):
                    skipped[os.path.splitext(name)[1].lower() or "no extension"] += 1


def class_folders(folder: str | os.PathLike[str]) -> list[str]:
    """Return the sorted names of the first-level subfolders that are read: the classes."""
    return next(_walk(os.fspath(folder), Counter()))[1]


def _walk(top: str, skipped: Counter[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk as ``os.walk``, but only folders that are read, in sorted order."""

    def fail(error: OSError) -> None:
        raise error  # otherwise a class would be missing

    for path, folders, files in os.walk(top, onerror=fail, followlinks=True):
        seen = [name for name in folders if name[0] != "." and not _leads_back(path, name)]
        folders[:] = sorted(name for name in seen if _is_read(path, name))
        skipped.update(f"{name}{os.sep}" for name in set(seen) - set(folders))
        yield path, folders, files


def _is_read(path: str, name: str) -> bool:
    """Return whether a folder is not a system folder and may be listed."""
    if name.lower() in _SYSTEM:
        return False
    try:
        os.scandir(os.path.join(path, name)).close()
    except PermissionError:
        return False
    return True


def _leads_back(path: str, name: str) -> bool:
    """Return whether a folder is a link to a folder that contains it."""
    link = os.path.join(path, name)
    target = os.path.realpath(link) if os.path.islink(link) else ""
    return bool(target) and os.path.commonpath([target, os.path.realpath(path)]) == target
