"""Sort images into one folder per class."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePath

import torch
from PIL import Image

from pirl_plugin.checkpoints.classifier import Classifier
from pirl_plugin.images.decode import read_file
from pirl_plugin.images.source import RGB, ImageSource
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import RUN_FILE, claim_folder, naming_failures
from pirl_plugin.views.pixels import as_image

UNSURE = "unsure"
"""Folder for images without a sufficiently probable class."""


def claim_sorted(
    folder: Path, source: ImageSource, classifier: Classifier | None, min_probability: float = 0
) -> None:
    """Check that images can be sorted, create the folder, and record the classifier in it.

    Args:
        folder: the folder for sorted images.
        source: the images.
        classifier: predicts the classes; None: the checkpoint has none.
        min_probability: less probable images go to the folder :data:`UNSURE`.

    Raises:
        Refused: there is no classifier, or a class cannot be a folder name; the folder holds other
            files or images sorted by another classifier, or overlaps with the images' folder; or no
            picture format holds the images.
    """
    if classifier is None:
        raise Refused(
            "--sort-into needs predicted classes. Pass a classifier.torch from pirl-plugin "
            "linear or finetune as --checkpoint."
        )
    for name in classifier.classes:
        if name in ("", ".", "..") or "/" in name:
            raise Refused(
                f"The class name {name!r} cannot be a folder name. Rename the class, or "
                f"omit --sort-into."
            )
    if min_probability > 0 and UNSURE in classifier.classes:
        raise Refused(
            f"The classifier has a class {UNSURE}, which --min-probability needs for uncertain "
            f"images. Rename the class, or omit the option."
        )
    target = folder.resolve()
    images = Path(source.path).resolve()
    if target.is_relative_to(images) or images.is_relative_to(target):
        raise Refused(
            f"Links in {folder} would be read again as images in {source.path}. Choose a folder "
            f"apart from it."
        )
    pixels = source.pixel_type
    if pixels != RGB and not os.path.isfile(source.files_of(0)[0]):
        raise Refused(
            f"{source.path} holds {pixels}, for which there is no picture format. Omit --sort-into."
        )
    if folder.is_dir() and any(folder.iterdir()) and not (folder / RUN_FILE).is_file():
        raise Refused(f"{folder} is not empty. Choose a new folder.")
    weights = hashlib.sha256(classifier.weight.numpy().tobytes()).hexdigest()
    claim_folder(folder, {"command": "embed", "classes": classifier.classes, "weights": weights})


def sort_images(
    folder: Path, source: ImageSource, rows: Sequence[int], classes: Sequence[str]
) -> None:
    """Put a symbolic link to each image, or a copy, into ``folder/CLASS``.

    An image with one file per channel gets a link to each file.

    Nothing is overwritten: an image with an existing name gets a suffix.

    Args:
        folder: the folder, which is created.
        source: the images.
        rows: N rows in the source.
        classes: N class names, checked by :func:`claim_sorted`.
    """
    with naming_failures(folder):
        for row, name in zip(rows, classes, strict=True):
            target = folder / name
            target.mkdir(parents=True, exist_ok=True)
            for file in source.files_of(row):
                _place(target, source, row, file)


def _place(folder: Path, source: ImageSource, row: int, file: str) -> None:
    """Link or copy an image's file, under the first free name."""
    original = os.path.abspath(file)
    name = PurePath(file if source.channel_names else source.name_of(row))
    suffix = name.suffix
    content = None
    if not os.path.isfile(original):
        content = _content(source, row, file)
        suffix = suffix or f".{Image.open(io.BytesIO(content)).format}".lower()
    path = folder / f"{name.stem}{suffix}"
    number = 1
    while os.path.lexists(path):
        if path.is_symlink() and os.readlink(path) == original:
            return
        number += 1
        path = folder / f"{name.stem}_{number}{suffix}"
    if content is None:
        with suppress(OSError):  # a file system without links
            path.symlink_to(original)
            return
        content = _content(source, row, file)
    with path.open("xb") as copy:
        copy.write(content)


def _content(source: ImageSource, row: int, file: str) -> bytes | bytearray:
    """Return the content of an image's file, or its pixels as a PNG."""
    with source.reading(row):
        content = read_file(file) if source.channel_names else source.read(row)
    if not isinstance(content, torch.Tensor):
        return content
    stream = io.BytesIO()
    as_image(content).save(stream, "PNG")
    return stream.getvalue()
