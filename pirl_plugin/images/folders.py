"""Find the image files below a folder, in a fixed order."""

from __future__ import annotations

import functools
import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath

from pirl_plugin.images.decode import can_read_heif

_EVERYWHERE = (
    ".jpg", ".jpeg", ".jfif", ".jpe", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp",
    ".gif",
)  # fmt: skip
_BY_PIL = {"avif": (".avif",), "jpg_2000": (".jp2", ".j2k", ".jpx", ".jpf", ".jpc")}
_HEIF = (".heic", ".heif", ".hif")
# Images that no decoder reads, or that lack one here; other files are no images.
_UNREAD = frozenset(_HEIF).union(
    *_BY_PIL.values(),
    ".jxl .jxr .svg .psd .xcf .eps .ai .raw .dng .cr2 .cr3 .nef .arw .orf .rw2 .raf .exr .hdr .mpo "
    ".tga .ico .pbm .pnm".split(),
)
_SYSTEM = frozenset({"lost+found", "@eadir", "__macosx", "$recycle.bin"})


@functools.cache
def image_extensions() -> tuple[str, ...]:
    """Extensions, in lower case and with their dot, of the files that can be read here.

    JPEG, PNG, PPM, BMP, TIFF, WebP and GIF everywhere; AVIF and JPEG 2000 where PIL was built with
    them; HEIC where ``pillow_heif`` is installed.
    """
    from PIL import features

    built = [e for feature, found in _BY_PIL.items() if features.check(feature) for e in found]
    return (*_EVERYWHERE, *built, *(_HEIF if can_read_heif() else ()))


def find_images(folder: str, skipped: Counter[str] | None = None) -> Iterator[str]:
    """Find the images below a folder, by extension, in a fixed order.

    The images of the folder itself come first, then those of each first-level subfolder (its
    class) in order of name; within one, folders by path and files by name, as torchvision's
    ``ImageFolder`` orders them. Hidden names, folders of systems (``lost+found``, ``@eaDir``, …)
    and folders that cannot be listed are left out. Links to folders are followed, unless they lead
    back to a folder that the walk came through.

    Args:
        folder: an existing folder.
        skipped: counts, as the walk goes on, the files that are not read, by extension, and the
            subfolders that are left out, by path.

    Yields:
        Paths relative to ``folder``.
    """
    yield from _images_in("", _list(folder)[0], skipped)
    for name in class_folders(folder, skipped):
        todo = [name]
        walked = []
        while todo:
            below = todo.pop()
            files, folders = _list(folder, below, skipped)
            walked.append((below, files))
            todo += [os.path.join(below, each) for each in folders]
        for below, files in sorted(walked):
            yield from _images_in(below, files, skipped)


def class_folders(folder: str | os.PathLike[str], skipped: Counter[str] | None = None) -> list[str]:
    """Names of the first-level subfolders that the walk enters, sorted: the classes."""
    return _list(os.fspath(folder), "", skipped)[1]


def check_all_in_classes(folder: str | os.PathLike[str]) -> None:
    """Refuse an image that lies beside the folders of classes, and is of none.

    Raises:
        ValueError: there is one.
    """
    files, folders = _list(os.fspath(folder))
    image = next(_images_in("", files, None), None)
    if image is not None and folders:
        raise ValueError(
            f"{os.path.join(folder, image)} lies beside the folders of the classes: expected each "
            f"image in the folder of its class; move it there, or away"
        )


def describe_skipped(folder: str, skipped: Counter[str], log: logging.Logger) -> None:
    """Say in the log which images and subfolders are not read, and what to do."""
    for name, count in sorted(skipped.items()):
        if name.startswith("/"):
            log.warning(f"{folder}: the folder {name[1:]} is left out: hidden, a system's, or shut")
        elif not name:
            log.warning(
                f"{folder}: {count} files without an extension skipped; rename images 1.jpg"
            )
        elif name in _UNREAD:
            remedy = "pip install pillow-heif" if name in _HEIF else "convert to JPEG or PNG"
            log.warning(f"{folder}: {count} {name} files skipped: no decoder here; {remedy}")
    others = sorted(name for name in skipped if name[:1] == "." and name not in _UNREAD)
    if others:
        log.info(f"{folder}: files that are no images skipped ({', '.join(others[:8])})")


def _list(
    top: str, below: str = "", skipped: Counter[str] | None = None
) -> tuple[list[str], list[str]]:
    """Names of the files, and of the subfolders that the walk enters, each sorted."""
    files, folders, left_out = [], [], []
    try:
        with os.scandir(os.path.join(top, below)) as entries:
            for entry in entries:
                try:
                    is_folder = entry.is_dir()
                except OSError:  # a link that cannot be followed
                    continue
                if not is_folder:
                    files.append(entry.name)
                elif entry.name.startswith(".") or entry.name.lower() in _SYSTEM:
                    left_out.append(entry.name)
                elif not entry.is_symlink() or _leads_away(top, below, entry.name):
                    folders.append(entry.name)
                    if not os.access(entry.path, os.R_OK | os.X_OK):
                        left_out.append(folders.pop())
    except PermissionError:  # any other error is raised: it would leave out a class for a moment
        if not below:
            raise
        left_out.append("")
    if skipped is not None:
        skipped.update(f"/{os.path.join(below, name)}" for name in left_out if name[:1] != ".")
    return sorted(files), sorted(folders)


def _leads_away(top: str, below: str, name: str) -> bool:
    """Whether a link does not lead to a folder that contains one that the walk came through."""
    target = os.path.realpath(os.path.join(top, below, name))
    above = PurePath(below)
    for folder in (above, *above.parents):
        if os.path.commonpath([target, os.path.realpath(os.path.join(top, folder))]) == target:
            return False
    return True


def _images_in(prefix: str, names: list[str], skipped: Counter[str] | None) -> Iterator[str]:
    extensions = image_extensions()
    for name in names:
        if name.startswith("."):
            continue
        if name.lower().endswith(extensions):
            yield os.path.join(prefix, name)
        elif skipped is not None:
            skipped[PurePath(name).suffix.lower()] += 1
