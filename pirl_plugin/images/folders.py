"""Images below a folder in a fixed order, class folders, and a data set's splits."""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from PIL import Image

from pirl_plugin.images.classes import natural_order
from pirl_plugin.images.columns import Entry
from pirl_plugin.images.decode import advice_on
from pirl_plugin.images.names import DISK_FILELIST, DISK_FOLDER
from pirl_plugin.images.pattern import read_pattern
from pirl_plugin.images.source import ImageSource
from pirl_plugin.system.console import warn_once
from pirl_plugin.system.failures import MissingFile, Refused
from pirl_plugin.system.watcher import waiting

_KNOWN_EXTENSIONS = (
    ".jpg", ".jpeg", ".jfif", ".jpe", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp",
    ".gif", ".avif", ".jp2", ".j2k", ".jpx", ".jpf", ".jpc", ".heic", ".heif", ".hif",
)  # fmt: skip
_OF_PIL = Image.registered_extensions()
IMAGE_EXTENSIONS = tuple(extension for extension in _KNOWN_EXTENSIONS if extension in _OF_PIL)
"""Extensions that this PIL supports, in lower case, with the dot."""
ARRAY_EXTENSION = ".npy"
"""Extension for arrays, which count as images only if there are no ordinary images."""

# Folders that operating systems and storage devices create: #recycle, @eaDir, $RECYCLE.BIN, …
_SYSTEM_PREFIXES = ("#", "@", "$", "~")
_SYSTEM_FOLDERS = frozenset(
    {
        "lost+found", "__macosx", "__pycache__", "system volume information", "recycler",
        "network trash folder", "temporary items",
    }
)  # fmt: skip

TEST_FOLDERS = ("val", "valid", "validation", "test")
"""Names for the test image folder beside ``train``; the first existing one is used."""


class FolderSource(ImageSource):
    """The images below a folder; subfolders, if any, are the classes.

    One warning counts the skipped folders by name and the skipped files by extension. Arrays count
    as images if there are no ordinary images, or if the pattern selects them.

    Args:
        path: the folder.
        all_splits: read all images in a folder that holds a data set's splits.
        pattern: a regular expression for relative paths, see
            :func:`~pirl_plugin.images.pattern.read_pattern`.

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: it contains no image, or several splits, or the pattern does not fit.
    """

    kind = "folder"
    registered_name = DISK_FOLDER
    label_hint = "Make one folder per class, or pass a list with labels."
    folders_are_labels = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        all_splits: bool = False,
        pattern: str | None = None,
    ) -> None:
        folder = os.fspath(path)
        _check_folder(folder, all_splits)
        skipped: Counter[str] = Counter()
        names = list(find_images(folder, skipped, (*IMAGE_EXTENSIONS, ARRAY_EXTENSION)))
        if pattern is not None:
            entries = read_pattern(pattern, names, skipped)
        else:
            pictures = [name for name in names if not name.lower().endswith(ARRAY_EXTENSION)]
            entries = list(map(Entry, pictures or names))
            if len(entries) < len(names):
                skipped[ARRAY_EXTENSION] = len(names) - len(entries)
        if skipped:
            counts = warn_skipped(folder, skipped)
            if not names:
                raise Refused(f"{folder} contains no images, only {counts}")
        labels = {entry.label for entry in entries if entry.label}
        super().__init__(folder, entries, class_order=natural_order(labels))
        if self.channel_names:
            warn_once(f"{folder}: channels {' '.join(self.channel_names)}")


def _check_folder(folder: str, all_splits: bool) -> None:
    """Check that a folder exists and holds one set of images.

    Args:
        folder: the folder.
        all_splits: allow several splits of a data set.

    Raises:
        FileNotFoundError: it does not exist.
        Refused: it is a file, or holds several splits.
    """
    with opening(folder):
        is_file = os.path.isfile(folder)
        is_folder = os.path.isdir(folder)
    if is_file:
        raise Refused(
            f"{folder} is a file, not a folder. For a list of images, choose the data source "
            f"{DISK_FILELIST}."
        )
    if not is_folder:
        raise MissingFile(f"{folder} does not exist.")
    splits = find_splits(folder)
    if splits is not None and not all_splits:
        train, test = splits
        raise Refused(f"{folder} holds {train.name} and {test.name}. Pass one, such as {train}.")


def warn_skipped(path: str, skipped: Counter[str]) -> str:
    """Warn once about what a source skips, and return the counts as text.

    Args:
        path: the source's path.
        skipped: reason → number of files, folders or images.
    """
    counts = ", ".join(f"{reason} ({count})" for reason, count in skipped.items())
    counts = textwrap.shorten(counts, 1000, placeholder=" …")
    counts += advice_on(skipped)
    warn_once(f"{path}: skipped {counts}")
    return counts


def find_images(
    folder: str,
    skipped: Counter[str] | None = None,
    endings: str | tuple[str, ...] = IMAGE_EXTENSIONS,
) -> Iterator[str]:
    """Find the images below a folder, by extension, in a fixed order.

    Images in the folder itself come first, then images in each first-level subfolder (a class), by
    name. Within a class, folders are sorted by path and files by name, as in torchvision's
    ``ImageFolder``. Hidden names, system folders (``lost+found``, ``@eaDir``, ``#recycle``, …) and
    folders without permission are skipped. Links to folders are followed.

    Args:
        folder: an existing folder.
        skipped: counts skipped files by extension and skipped folders by name.
        endings: image extensions, in lower case.

    Yields:
        Paths relative to ``folder``.

    Raises:
        OSError: ``folder`` cannot be listed, or a subfolder for another reason than permission.
    """
    skipped = Counter() if skipped is None else skipped
    classes, files = _list(folder, skipped)
    for name in classes:
        for _, files_in_folder in sorted(_walk(os.path.join(folder, name), skipped)):
            files += files_in_folder
    start = len(os.path.join(folder, ""))
    for file in files:
        if file.lower().endswith(endings):
            yield file[start:]
        else:
            skipped[os.path.splitext(file)[1].lower() or "no extension"] += 1


def class_folders(folder: str | os.PathLike[str]) -> list[str]:
    """Return the sorted names of the class folders: first-level subfolders, without system ones."""
    names, _ = _list(os.fspath(folder), Counter())
    return names


def find_splits(root: str | os.PathLike[str]) -> tuple[Path, Path] | None:
    """Find the folders ``train`` and ``val``, or another of :data:`TEST_FOLDERS`, in any case."""
    folders = {name.lower(): Path(root, name) for name in class_folders(root)}
    for name in TEST_FOLDERS:
        if name in folders and "train" in folders:
            return folders["train"], folders[name]
    return None


def _walk(folder: str, skipped: Counter[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each readable folder in a folder, itself included, with the paths of its files."""
    try:
        subfolders, files = _list(folder, skipped)
    except PermissionError:
        skipped[f"{os.path.basename(folder)}{os.sep}"] += 1
        return
    yield folder, files
    for name in subfolders:
        yield from _walk(os.path.join(folder, name), skipped)


def _list(folder: str, skipped: Counter[str]) -> tuple[list[str], list[str]]:
    """Return the names of a folder's subfolders and the paths of its files, both sorted."""
    subfolders = []
    files = []
    with opening(folder):
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if entry.name.startswith("."):
                continue
            is_of_system = (
                entry.name.startswith(_SYSTEM_PREFIXES) or entry.name.lower() in _SYSTEM_FOLDERS
            )
            is_link = entry.is_symlink()
            is_folder = os.path.isdir(entry) if is_link else entry.is_dir()
            if not is_folder:
                files.append(entry.path)
            elif is_of_system or (is_link and _leads_back(entry)):
                skipped[f"{entry.name}{os.sep}"] += 1
            else:
                subfolders.append(entry.name)
    return subfolders, files


def _leads_back(entry: os.DirEntry[str]) -> bool:
    """Return whether a link leads to a folder on its path, which may contain links."""
    target = Path(entry).resolve()
    return any(parent.resolve().is_relative_to(target) for parent in Path(entry).parents)


def opening(path: str | os.PathLike[str]) -> AbstractContextManager[None]:
    """Limit how long a block may take to look for a file or folder, or to list it."""
    return waiting(lambda: f"opening {os.fspath(path)}")
