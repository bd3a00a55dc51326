"""Which image files can be read here: extensions by format, as far as decoders are installed."""

from __future__ import annotations

import functools
import importlib.util
from collections import Counter
from pathlib import PurePath

_EVERYWHERE = (
    ".jpg", ".jpeg", ".jfif", ".jpe", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp",
    ".gif",
)  # fmt: skip
# Extensions -> the feature of PIL that reads them.
_BY_PIL = {
    (".avif",): "avif",
    (".jp2", ".j2k", ".jpx", ".jpf", ".jpc"): "jpg_2000",
}
_HEIF = (".heic", ".heif", ".hif")
_HEIF_DECODER = "pillow_heif"
# Extensions of images that may lack a decoder here; other files are no images.
_UNREAD = frozenset(_HEIF).union(
    *_BY_PIL,
    ".jxl .jxr .svg .psd .xcf .eps .ai .raw .dng .cr2 .cr3 .nef .arw .orf .rw2 .raf .exr .hdr .mpo "
    ".tga .ico .pbm .pnm".split(),
)


@functools.cache
def image_extensions() -> tuple[str, ...]:
    """Extensions, in lower case and with their dot, of the files that can be read here.

    JPEG, PNG, PPM, BMP, TIFF, WebP and GIF everywhere; AVIF and JPEG 2000 where PIL was built with
    them; HEIC where ``pillow_heif`` is installed.
    """
    from PIL import features

    found = list(_EVERYWHERE)
    for extensions, feature in _BY_PIL.items():
        if features.check(feature):
            found += extensions
    return (*found, *_HEIF) if can_read_heif() else tuple(found)


@functools.cache
def can_read_heif() -> bool:
    """Whether HEIC is read, after registering PIL's opener for it; false without pillow_heif."""
    if importlib.util.find_spec(_HEIF_DECODER) is None:
        return False
    importlib.import_module(_HEIF_DECODER).register_heif_opener()
    return True


def describe_skipped(skipped: Counter[str]) -> list[str]:
    """Say which images of a folder are not read, and what to do.

    Args:
        skipped: how many files there are of each extension (lower case; empty for none).

    Returns:
        A sentence for each format of images that no decoder here reads, and one for files without
        an extension.
    """
    sentences = []
    for extension, count in sorted(skipped.items()):
        if extension and extension not in _UNREAD:
            continue
        plural = "s" * (count > 1)
        if not extension:
            sentences.append(
                f"{count} file{plural} without an extension skipped: expected a name such as "
                f"1.jpg; rename those that are images"
            )
            continue
        remedy = "convert to JPEG or PNG"
        if extension in _HEIF:
            remedy = f"pip install {_HEIF_DECODER.replace('_', '-')}, or {remedy}"
        sentences.append(f"{count} {extension} file{plural} skipped: no decoder here; {remedy}")
    return sentences


def describe_others(skipped: Counter[str]) -> str:
    """Say which files of a folder are no images, by extension; empty if there are none."""
    others = {e: n for e, n in skipped.items() if e and e not in _UNREAD}
    kinds = ", ".join(sorted(others)[:8])
    return f"{sum(others.values())} files that are no images skipped ({kinds})" if others else ""


def extension_of(name: str) -> str:
    """The extension of a file's name in lower case, with its dot; empty if it has none."""
    return PurePath(name).suffix.lower()
