"""Copy a folder of images at a smaller size, for faster reading.

The copy has the same folders and names, so lists of images fit both. Smaller copies are JPEGs with
any extension: readers recognize an image by its content. The same command completes an interrupted
copy and updates copies of changed images; it keeps copies of removed ones.
"""

from __future__ import annotations

import argparse
import io
import os
import warnings
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import interpolate
from torch.utils.data import Dataset

from pirl_plugin.images.decode import READ_ERRORS, UnreadableImageError, decode, read_file
from pirl_plugin.images.folders import (
    ARRAY_EXTENSION,
    IMAGE_EXTENSIONS,
    FolderSource,
    find_images,
)
from pirl_plugin.images.tiff import encode_tiff
from pirl_plugin.system.console import Progress
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import (
    LOCK,
    RUN_FILE,
    atomic_write,
    claim_folder,
    locked,
    remove_unfinished,
)
from pirl_plugin.system.loader import reading
from pirl_plugin.system.text import counted, printable
from pirl_plugin.system.watcher import resumable
from pirl_plugin.views.pixels import as_image, is_rgb

# What happened to an image.
_COPIED = "images copied"
_PRESENT = "already there"
_FAILED = "failed"
_QUALITY = 90  # of JPEGs
_BLOCK = 32  # images copied by a process at a time
_MAX_PIXELS = 178_000_000  # PIL's own limit; a process needs about 2 GB for such an image


def prepare(options: argparse.Namespace) -> int:
    """Copy the images; return 1 if none could be copied, else 0."""
    source = options.input.resolve()
    out = options.output.resolve()
    images = FolderSource(source, all_splits=True)
    if out == source or source in out.parents:
        raise Refused(f"OUT = {out} is inside IN = {source}. Choose a folder outside it.")
    with locked(out, "OUT"), resumable():
        if {LOCK} < set(os.listdir(out)) and not (out / RUN_FILE).is_file():
            raise Refused(
                f"OUT = {out} contains files that this command did not write. Choose a new or "
                f"empty folder."
            )
        claim_folder(out, {"source": str(source), "size": options.size, "nodata": options.nodata})
        try:
            outcomes = _copy_all(_Copies(images, out, options), options.workers)
        finally:
            remove_unfinished(out)  # of killed workers
    counts = ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in (_COPIED, _PRESENT, _FAILED))
    print(f"{out}: {counts}")
    # Otherwise, a run on the copies would use removed images in silence.
    names = {images.name_of(row) for row in range(len(images))}
    copies = find_images(str(out), endings=(*IMAGE_EXTENSIONS, ARRAY_EXTENSION))
    extra_copies = sorted(set(copies) - names)
    if extra_copies:
        print(
            f"{out} has {counted(len(extra_copies), 'image')} that {source} lacks, such as "
            f"{printable(extra_copies[0])}. If they were removed there, delete them."
        )
    return int(outcomes[_FAILED] == len(images))


def _copy_all(copies: _Copies, workers: int) -> Counter[str]:
    """Make the missing copies, and count what happened to the images."""
    outcomes: Counter[str] = Counter()
    with (
        closing(Progress("copies", len(copies))) as progress,
        reading(
            copies, workers, copies.images.waiting, batch_size=_BLOCK, collate_fn=list
        ) as batches,
    ):
        for batch in batches:
            outcomes.update(batch)
            progress.update(len(batch))
    return outcomes


class _Copies(Dataset[str]):
    """Copies of images; a loader worker makes one when it reads it.

    A copy has the modification time of its image, so that a changed image is copied again.

    Args:
        images: the images.
        out: output folder.
        options: the command's options.
    """

    def __init__(self, images: FolderSource, out: Path, options: argparse.Namespace) -> None:
        self.images = images
        self._out = out
        self._options = options

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> str:
        """Make a copy if it is missing; return what happened."""
        path = self.images.path_of(row)
        target = self._out / self.images.name_of(row)
        try:
            with self.images.reading(row):
                changed_ns = os.stat(path).st_mtime_ns
                if target.is_file() and target.stat().st_mtime_ns == changed_ns:
                    return _PRESENT
                content = self._smaller(path)
        except READ_ERRORS as error:
            if isinstance(error, UnreadableImageError):
                target.unlink(missing_ok=True)  # from before the image broke
            self.images.report_unreadable(row, str(error) or "too little memory")
            return _FAILED
        with atomic_write(target) as file:
            file.write(content)
            file.flush()  # before the time is set, which a write would change
            os.utime(file.fileno(), ns=(changed_ns, changed_ns))
        return _COPIED

    def _smaller(self, path: str) -> bytes | bytearray:
        """Return the content of an image's copy: a smaller JPEG, ``.npy`` or TIFF.

        RGB in uint8 without missing pixels becomes a JPEG. If the image's shorter side has at most
        ``size`` pixels, the bytes do not change.
        """
        size = self._options.size
        nodata = self._options.nodata
        data = read_file(path)
        with warnings.catch_warnings():  # PIL also warns below its limit
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = decode(data, scaled_to=2 * size, max_pixels=_MAX_PIXELS)
        pixels = image.pixels
        height, width = pixels.shape[1:]
        scale = size / min(height, width)
        if scale >= 1:
            return data
        smaller_height = max(size, round(height * scale))
        smaller_width = max(size, round(width * scale))
        missing = image.missing(nodata)
        if is_rgb(pixels) and (missing is None or not missing.any()):
            file = io.BytesIO()
            resized = as_image(pixels).resize(
                (smaller_width, smaller_height), Image.Resampling.LANCZOS
            )
            resized.save(file, "JPEG", quality=_QUALITY)
            return file.getvalue()
        in_file = None
        if nodata is None and not pixels.is_floating_point():
            in_file = image.nodata
            nodata = image.nodata
        return _encode(_shrink(pixels, missing, (smaller_height, smaller_width), nodata), in_file)


def _shrink(
    pixels: torch.Tensor,
    missing: NDArray[np.bool_] | None,
    size: tuple[int, int],
    nodata: float | None,
) -> NDArray[np.generic]:
    """Return a smaller image; each of its pixels is a mean of valid pixels.

    Args:
        pixels: ``(C, H, W)`` in uint8, uint16 or float32.
        missing: ``(C, H, W)``, which values are missing; None: none are.
        size: height and width of the result.
        nodata: the missing value in an integer result; float results have NaN.

    Returns:
        ``(C, height, width)``, same dtype. A pixel is missing if more than half of what it covers
        is missing.
    """
    valid = torch.ones_like(pixels, dtype=torch.float32)
    if missing is not None:
        valid = torch.from_numpy(~missing).float()
    values = torch.where(valid > 0, pixels.float(), 0)
    both = torch.stack([values, valid])
    total, share = interpolate(both, size, mode="bilinear", antialias=True).numpy()
    means = total / np.maximum(share, np.finfo(np.float32).eps)
    dtype = pixels.numpy().dtype
    if dtype.kind != "f":
        means = means.round()
    is_missing = share < 0.5
    means[is_missing] = np.nan if dtype.kind == "f" else (nodata or 0)
    return means.astype(dtype)


def _encode(array: NDArray[np.generic], nodata: float | None) -> bytes:
    """Return an array ``(C, H, W)`` as a file: a ``.npy`` or, to name ``nodata`` or axes, a TIFF.

    A ``.npy`` with more channels than pixels on a side would be read with other axes.
    """
    if nodata is not None or len(array) >= min(array.shape[1:]):
        return encode_tiff(array, nodata)
    file = io.BytesIO()
    np.save(file, np.moveaxis(array, 0, -1))
    return file.getvalue()
