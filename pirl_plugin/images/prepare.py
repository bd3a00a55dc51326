"""Copy a folder of images at a smaller size, for faster reading.

The copy has the same folders and names, so lists of images fit both. Smaller copies are JPEGs with
any extension: readers recognize an image by its content. Images other than RGB in uint8 keep their
size. The same command completes an interrupted copy and updates copies of changed images.
"""

from __future__ import annotations

import argparse
import io
import os
import warnings
from collections import Counter
from contextlib import closing
from pathlib import Path

from PIL import Image
from torch.utils.data import Dataset

from pirl_plugin.images.decode import READ_ERRORS, UnreadableImageError, decode, read_file
from pirl_plugin.images.folders import (
    ARRAY_EXTENSION,
    IMAGE_EXTENSIONS,
    FolderSource,
    find_images,
)
from pirl_plugin.system.console import Progress
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import (
    LOCK,
    RUN_FILE,
    UNFINISHED,
    atomic_write,
    claim_folder,
    locked,
    remove,
)
from pirl_plugin.system.loader import reading
from pirl_plugin.system.text import counted, printable
from pirl_plugin.system.watcher import resumable
from pirl_plugin.views.pixels import as_image, is_rgb

# What happened to an image.
_COPIED = "copied"
_KEPT = "copied at full size"
_PRESENT = "already there"
_FAILED = "failed"
_BLOCK = 32  # images copied by a process at a time
_MAX_PIXELS = 178_000_000  # PIL's own limit; a process needs about 2 GB for such an image


def prepare(options: argparse.Namespace) -> int:
    """Copy the images; return 1 if none could be copied, else 0."""
    source = options.input.resolve()
    out = options.output.resolve()
    images = FolderSource(source, all_splits=True)
    if out == source or source in out.parents:
        raise Refused(f"OUT = {out} is inside IN = {source}. Choose a folder outside it.")
    with locked(out, "OUT"):
        return _prepare(source, out, images, options)


def _prepare(source: Path, out: Path, images: FolderSource, options: argparse.Namespace) -> int:
    if {LOCK} < {path.name for path in out.iterdir()} and not (out / RUN_FILE).is_file():
        raise Refused(
            f"OUT = {out} contains files that this command did not write. Choose a new or empty "
            f"folder."
        )
    run = {
        "source": str(source),
        "size": options.size,
        "quality": options.quality,
        "nodata": options.nodata,
    }
    claim_folder(out, run)
    try:
        with resumable():
            outcomes = _copy_all(_Copies(images, out, options), options.workers)
    finally:
        for unfinished in out.glob(f"{UNFINISHED}*"):  # from killed workers
            remove(unfinished)
    num_copied = outcomes[_COPIED] + outcomes[_KEPT]
    num_failed = outcomes[_FAILED]
    print(
        f"{out}: {num_copied} images copied, {outcomes[_PRESENT]} already there, {num_failed} "
        f"failed"
    )
    if outcomes[_KEPT]:
        print(
            f"{outcomes[_KEPT]} of these keep their size: only RGB with 8 bits and without missing "
            f"pixels is made smaller"
        )
    _report_extra_copies(out, source, images)
    return int(num_failed == len(images))


def _report_extra_copies(out: Path, source: Path, images: FolderSource) -> None:
    """Print how many images are only in the copy, such as copies of images removed since."""
    names = {images.name_of(row) for row in range(len(images))}
    copies = find_images(str(out), endings=(*IMAGE_EXTENSIONS, ARRAY_EXTENSION))
    extra_copies = sorted(set(copies) - names)
    if extra_copies:
        print(
            f"{out} has {counted(len(extra_copies), 'image')} that {source} lacks, such as "
            f"{printable(extra_copies[0])}. If they were removed there, delete them."
        )


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
                content, outcome = self._smaller(read_file(path))
        except READ_ERRORS as error:
            if isinstance(error, UnreadableImageError):
                target.unlink(missing_ok=True)  # from before the image broke
            self.images.report_unreadable(row, str(error) or "too little memory")
            return _FAILED
        unfinished = self._out / f"{UNFINISHED}{row}"  # where the command finds it after a kill
        with atomic_write(target, unfinished) as file:
            file.write(content)
            file.flush()  # before the time is set, which a write would change
            os.utime(file.fileno(), ns=(changed_ns, changed_ns))
        return outcome

    def _smaller(self, content: bytearray) -> tuple[bytes | bytearray, str]:
        """Return the content of an image's copy, and whether the image was too large but kept.

        RGB in uint8 without missing pixels becomes a smaller JPEG, unless its shorter side has at
        most ``size`` pixels. For all other images, the bytes do not change.
        """
        size = self._options.size
        with warnings.catch_warnings():  # PIL also warns below its limit
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = decode(content, scaled_to=2 * size, max_pixels=_MAX_PIXELS)
        height, width = image.pixels.shape[1:]
        scale = size / min(height, width)
        if scale >= 1:
            return content, _COPIED
        missing = image.missing(self._options.nodata)
        if not is_rgb(image.pixels) or (missing is not None and missing.any()):
            return content, _KEPT
        new_size = (max(size, round(width * scale)), max(size, round(height * scale)))
        resized = as_image(image.pixels).resize(new_size, Image.Resampling.LANCZOS)
        file = io.BytesIO()
        resized.save(file, "JPEG", quality=self._options.quality)
        return file.getvalue(), _COPIED
