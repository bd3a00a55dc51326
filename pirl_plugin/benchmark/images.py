"""The images that a benchmark runs on: a user's, or drawn ones."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pirl_plugin.images.decode import decode_image
from pirl_plugin.images.folders import find_images
from pirl_plugin.quickstart.sample import write_sample_dataset

if TYPE_CHECKING:
    from collections.abc import Iterator

SIDE = 448  # of the drawn images: as many pixels as a median photo of ImageNet, 500 × 375, and some
_READ_BY_VISSL = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


@contextlib.contextmanager
def image_folder(data: Path | None, count: int, entries: int = 0) -> Iterator[Path]:
    """A folder that VISSL and we read alike: ``all/00000.jpg`` … as links, for as long as it lasts.

    Args:
        data: a folder of images, in subfolders or not; None for images drawn at ``SIDE`` px.
        count: images at most, spread evenly over those found. Unreadable ones are left out:
            VISSL's source stops at the first.
        entries: make so many links, by repetition, if there are fewer images.

    Raises:
        SystemExit: the folder does not exist, or holds fewer than two readable images.
    """
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        if data is None:
            write_sample_dataset(root / "drawn", num_train=max(count, 10), num_val=10, size=SIDE)
            source = root / "drawn" / "train"
        elif not data.is_dir():
            raise SystemExit(f"pirl_plugin: --data {data} is not a folder that exists")
        else:
            source = data.resolve()
        names = [name for name in find_images(str(source)) if name.lower().endswith(_READ_BY_VISSL)]
        places = np.linspace(0, len(names), min(count, len(names)), endpoint=False, dtype=int)
        readable = [source / names[i] for i in places if _is_readable(source / names[i])]
        if len(readable) < 2:
            raise SystemExit(
                f"pirl_plugin: {len(readable)} readable images in {source}; expected at least 2: "
                f"name another folder with --data DIR"
            )
        links = root / "images" / "all"
        links.mkdir(parents=True)
        for number in range(max(entries, len(readable))):
            path = readable[number % len(readable)]
            (links / f"{number:05d}{path.suffix.lower()}").symlink_to(path)
        yield links.parent


def _is_readable(path: Path) -> bool:
    try:
        decode_image(path.read_bytes())
    except (OSError, ValueError) as error:
        print(f"left out: {path}: {error}")
        return False
    return True
