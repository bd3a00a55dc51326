"""Find the image files below a folder, in a fixed order."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator

from pirl_plugin.images.formats import extension_of, image_extensions
from pirl_plugin.utils.rows import evenly_spaced

_NOT_FOLLOWED = frozenset({errno.ELOOP, errno.EACCES})  # of links; broken ones raise nothing


def find_images(folder: str, skipped: Counter[str] | None = None) -> Iterator[str]:
    """Find the images below a folder, by extension, in a fixed order.

    The images of the folder itself come first, then those of each first-level subfolder (its
    class) in order of name; within one, folders by path and files by name, as torchvision's
    ``ImageFolder`` orders them. Names that start with a dot are skipped. Links to folders are
    followed, unless they lead back to a folder that the walk came through.

    Args:
        folder: an existing folder.
        skipped: counts, as the walk goes on, the files that are not read, by extension.

    Yields:
        Paths relative to ``folder``.

    Raises:
        OSError: a folder cannot be listed.
    """
    yield from _images_in("", _files(folder), skipped)
    for name in class_folders(folder):
        walked = []
        walk = os.walk(os.path.join(folder, name), followlinks=True, onerror=_not_listed)
        for root, folders, files in walk:
            folders[:] = [sub for sub in folders if _enters(folder, root, sub)]
            walked.append((root, files))
        for root, files in sorted(walked):
            yield from _images_in(os.path.relpath(root, folder), sorted(files), skipped)


def some_images(folder: str, count: int) -> list[str]:
    """Paths of up to ``count`` images spread over a folder and its subfolders, few of them listed.

    Of a folder with more subfolders than images are wanted, the images of some do not show. Where
    those that are looked into hold none, fewer are found.

    Raises:
        OSError: a folder cannot be listed.
    """
    return _some_images(folder, folder, count)


def _some_images(top: str, root: str, count: int) -> list[str]:
    images = [os.path.join(root, name) for name in _images_in("", _files(root), None)]
    # Equal shares for the folder's own images (None) and for each subfolder.
    parts: list[str | None] = [*([None] if images else []), *_subfolders(top, root)]
    chosen = [parts[row] for row in evenly_spaced(len(parts), count)]
    found: list[str] = []
    for number, part in enumerate(chosen):
        share = -(-(count - len(found)) // (len(chosen) - number))
        if part is None:
            found += [images[row] for row in evenly_spaced(len(images), share)]
        else:
            found += _some_images(top, os.path.join(root, part), share)
    return found


def check_all_in_classes(folder: str | os.PathLike[str]) -> None:
    """Refuse an image that lies beside the folders of classes, and is of none.

    Raises:
        ValueError: there is one.
    """
    image = next(_images_in("", _files(os.fspath(folder)), None), None)
    if image is not None and class_folders(os.fspath(folder)):
        raise ValueError(
            f"{os.path.join(folder, image)} lies beside the folders of the classes: expected each "
            f"image in the folder of its class; move it there, or away"
        )


def class_folders(folder: str) -> list[str]:
    """Names of the first-level subfolders that the walk enters, sorted."""
    return _subfolders(folder, folder)


def _subfolders(top: str, root: str) -> list[str]:
    with os.scandir(root) as entries:
        return sorted(e.name for e in entries if _is_folder(e) and _enters(top, root, e.name))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder; as in ``os.walk``, a link that cannot be followed is none."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno in _NOT_FOLLOWED:
            return False
        raise  # what a network disk says for a moment would leave out a class


def _files(folder: str) -> list[str]:
    with os.scandir(folder) as entries:  # which knows the types of files without asking for each
        return sorted(entry.name for entry in entries if not _is_folder(entry))


def _images_in(prefix: str, names: list[str], skipped: Counter[str] | None) -> Iterator[str]:
    extensions = image_extensions()
    for name in names:
        if name.startswith("."):
            continue
        if name.lower().endswith(extensions):
            yield os.path.join(prefix, name)
        elif skipped is not None:
            skipped[extension_of(name)] += 1


def _enters(top: str, root: str, name: str) -> bool:
    """Whether a walk from ``top`` may enter this subfolder of ``root``.

    It is not hidden, and not a link to a folder that contains one that the walk came through.
    """
    path = os.path.join(root, name)
    if name.startswith("."):
        return False
    if not os.path.islink(path):
        return True
    target, above, top = os.path.realpath(path), os.path.abspath(root), os.path.abspath(top)
    while os.path.commonpath([target, os.path.realpath(above)]) != target:
        if above == top:
            return True
        above = os.path.dirname(above)
    return False


def _not_listed(error: OSError) -> None:
    """Raise instead of leaving out a folder that a walk could not list."""
    raise type(error)(
        f"{error.filename} cannot be listed ({error.strerror}), and its images would be left out: "
        f"expected a folder that can be read; repair its mount or rights, or move it elsewhere"
    ) from error
