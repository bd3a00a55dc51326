"""Find the image files below a folder, in a fixed order."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

from pirl_plugin.data.formats import extension_of, image_extensions


def find_images(folder: str, skipped: Counter[str] | None = None) -> Iterator[str]:
    """Find the images below a folder, by extension, in a fixed order.

    The images of the folder itself come first, then those of each first-level subfolder (its
    class) in order of name; within one, folders by path and files by name, as torchvision's
    ``ImageFolder`` orders them. Names that start with a dot are skipped. Links to folders are
    followed, unless they lead back to a folder that contains them.

    Args:
        folder: an existing folder.
        skipped: counts, as the walk goes on, the files that are not read, by extension.

    Yields:
        Paths relative to ``folder``.
    """
    with os.scandir(folder) as entries:  # which knows the types of files without asking for each
        files = sorted(entry.name for entry in entries if entry.is_file())
    yield from _images_in("", files, skipped)
    for name in class_folders(folder):
        walked = []
        for root, folders, files in os.walk(os.path.join(folder, name), followlinks=True):
            folders[:] = [sub for sub in folders if _enters(root, sub)]
            walked.append((root, files))
        for root, files in sorted(walked):
            yield from _images_in(os.path.relpath(root, folder), sorted(files), skipped)


def class_folders(folder: str) -> list[str]:
    """Names of the first-level subfolders that the walk enters, sorted."""
    with os.scandir(folder) as entries:
        return sorted(e.name for e in entries if e.is_dir() and _enters(folder, e.name))


def _images_in(prefix: str, names: list[str], skipped: Counter[str] | None) -> Iterator[str]:
    extensions = image_extensions()
    for name in names:
        if name.startswith("."):
            continue
        if name.lower().endswith(extensions):
            yield os.path.join(prefix, name)
        elif skipped is not None:
            skipped[extension_of(name)] += 1


def _enters(root: str, name: str) -> bool:
    """Whether a walk may enter this subfolder: not hidden, and not a link to its own ancestor."""
    path = os.path.join(root, name)
    if name.startswith("."):
        return False
    if not os.path.islink(path):
        return True
    target = os.path.realpath(path)
    return os.path.commonpath([target, os.path.realpath(root)]) != target
