"""Encoded bytes → an 8-bit RGB image, or one kind of error that says why not."""

import functools
import io
import re
import warnings
from contextlib import suppress

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from pirl_plugin.images.formats import can_read_heif
from pirl_plugin.images.jpeg import JpegHeader, read_jpeg_header

try:  # the operator: torchvision's function of it warns at each call since 0.29, and will go
    import torchvision.io.image  # noqa: F401 (registers it)

    decode_jpeg = torch.ops.image.decode_jpeg
except (ImportError, AttributeError):  # PIL gives the same pixels
    decode_jpeg = None  # type: ignore[assignment]

MAX_BYTES = 2**29
"""What decoding one image may allocate: 0.5 GiB, for 53 million pixels of PNG or JPEG."""

SCALED_ABOVE = 3000
"""JPEGs whose shorter side is at least this many pixels are decoded at 1/4 or 1/8 of it.

One of 4,032 × 3,024 pixels then takes 1.6 to 2.7 times less time, with its views of the jigsaw.
At 1/2, those of 1,500 to 2,500 pixels take 1.1 to 1.3 times less: they are decoded whole."""

_SCALED_TO = SCALED_ABOVE // 4

_JPEG = b"\xff\xd8\xff"
_SCAN = b"\xff\xda"  # never within a scan, where FF is followed by 00 or a restart marker
_MAX_SCANS = 100  # encoders write about 10; each goes over the coefficients of the whole image
_RGB = 3  # torchvision's ImageReadMode.RGB
_FULL_SCALES = (1, 255, 65_535)
# Bytes a pixel at the peak: PIL's image (4 for colour), what its decoder keeps beside, the result.
_BYTES_A_PIXEL = {"JPEG2000": 24, "AVIF": 16, "HEIF": 16, "WEBP": 20}
_USUAL_BYTES_A_PIXEL = 10
_COEFFICIENT_BYTES = 2
_RUNS_PROGRAMS = frozenset({"EPS"})  # PIL hands these to Ghostscript
_OBJECT = re.compile(r" <_io\.\w+ object at 0x[0-9a-f]+>")  # what PIL calls a file in memory
_OPERATOR = re.compile(r"\w+, \S+\.cpp:\d+, ")  # where torchvision's operators raised, in its build
_STRIP = 1 << 20  # pixels that are converted at a time
_ORIENTATION = 0x0112
# EXIF orientation → (transpose first, flip rows, flip columns), of (3, H, W).
_TURNS = {
    2: (False, False, True),
    3: (False, True, True),
    4: (False, True, False),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}


class UnreadableImageError(ValueError):
    """These bytes are not an image that can be used; the message says why."""


def decode_image(
    data: bytes | bytearray, max_bytes: int | None = None, scaled_to: int | None = None
) -> torch.Tensor:
    """Decode an image of any usual format to RGB, upright.

    Ordinary JPEGs take torchvision's decoder, bit-identical to PIL's and faster; everything else
    (JPEGs in CMYK or with XMP before EXIF, PNG, GIF, WebP, AVIF, BMP, TIFF, …) takes PIL. EXIF
    orientation is applied, the first frame of an animation is taken, alpha is dropped, and 16-bit
    greys are scaled to 8 bits.

    A JPEG whose shorter side has ``SCALED_ABOVE`` pixels or more is decoded at the smallest of 1/4
    and 1/8 that leaves it 750 (libjpeg scales its DCT blocks). Crops of such images, resized to 224
    pixels, differ from PIL's of the whole image. Measured at 4,032 × 3,024 pixels and 1/4, mean of
    the absolute difference in grey levels over 40 random crops of 8 to 100 % of the image: noise
    whose amplitude falls as 1 / f: 0.9; as 1 / f^1.2: 0.5; as 1 / f^1.5: 0.2; 192 photos of 256
    pixels side by side: 0.8. Where the side of the crop is 0.3 of the image's: 3.5, 1.8, 0.5, 2.5.

    Args:
        data: the file's content; a ``bytearray`` saves a copy.
        max_bytes: most that decoding may allocate; None for ``MAX_BYTES``.
        scaled_to: decode every JPEG at the smallest of 1, 1/2, 1/4 and 1/8 that leaves its shorter
            side this many pixels; 0 for never; None for what is said above.

    Returns:
        uint8 (3, H, W), RGB, channels-last in memory unless it was turned by its EXIF tag.

    Raises:
        UnreadableImageError: for anything that cannot be decoded: no bytes, a truncated or
            damaged file, not an image, one that would need more memory than ``max_bytes`` or than
            there is. Nothing else is raised.

    Example:
        >>> file = io.BytesIO()
        >>> Image.new("RGB", (4, 3), "red").save(file, "PNG")
        >>> decode_image(file.getvalue())[:, 0, 0].tolist()
        [255, 0, 0]
    """
    max_bytes = MAX_BYTES if max_bytes is None else max_bytes
    if not data:
        raise UnreadableImageError("the file is empty (0 bytes)")
    try:
        if not data.startswith(_JPEG):
            return _decode_pil(data, max_bytes)
        header = read_jpeg_header(data)
        if header is None:
            raise ValueError("it is a damaged JPEG, without a size before its pixels")
        return _decode_jpeg(data, header, max_bytes, scaled_to)
    except UnreadableImageError:
        raise
    except MemoryError as error:
        raise UnreadableImageError(
            f"there is too little memory to decode it ({len(data)} bytes encoded)"
        ) from error
    except Exception as error:  # the decoders raise some ten types for damaged files
        said = _OPERATOR.sub("", _OBJECT.sub("", str(error)))
        reason = " ".join(said.split())[:200] or type(error).__name__
        raise UnreadableImageError(f"{reason} ({len(data)} bytes)") from error


def _decode_jpeg(
    data: bytes | bytearray, header: JpegHeader, max_bytes: int, scaled_to: int | None
) -> torch.Tensor:
    scale = _scale(min(header.height, header.width), scaled_to)
    pixels = header.height * header.width
    needed = pixels // scale**2 * _USUAL_BYTES_A_PIXEL
    if header.buffered:
        needed += pixels * header.components * _COEFFICIENT_BYTES
        if data.count(_SCAN) > _MAX_SCANS:
            raise UnreadableImageError(
                f"it is a JPEG of {data.count(_SCAN)} scans, more than the {_MAX_SCANS} that are "
                f"decoded: it would take very long, and may be malicious; save it again"
            )
    _refuse_bomb(header.height, header.width, needed, max_bytes)
    ordinary = header.components in (1, 3) and header.first_app1_is_exif
    if scale > 1 or not ordinary or decode_jpeg is None:  # torchvision looks at one APP1 alone
        return _decode_pil(data, max_bytes, header, scale)
    writable = data if isinstance(data, bytearray) else bytearray(data)  # or torch warns
    image = decode_jpeg(torch.frombuffer(writable, dtype=torch.uint8), _RGB, True)
    _, height, width = image.shape
    if (height, width) not in ((header.height, header.width), (header.width, header.height)):
        raise _mismatch(header, width, height)
    return image


def _scale(shorter: int, scaled_to: int | None) -> int:
    """The divisor, 1, 2, 4 or 8, of a JPEG whose shorter side is ``shorter`` pixels."""
    if scaled_to is None:
        scaled_to = _SCALED_TO if shorter >= SCALED_ABOVE else 0
    scale = 1
    while scale < 8 and scaled_to and shorter // (2 * scale) >= scaled_to:
        scale *= 2
    return scale


def _mismatch(header: JpegHeader, width: int, height: int) -> UnreadableImageError:
    return UnreadableImageError(
        f"its header says {header.width} × {header.height} pixels and the decoder {width} × "
        f"{height}: the file is damaged or malicious"
    )


def _refuse_bomb(height: int, width: int, needed: int, max_bytes: int) -> None:
    if needed > max_bytes:
        raise UnreadableImageError(
            f"the image is {width} × {height} pixels and would take {needed / 2**20:,.0f} MiB to "
            f"decode, more than the {max_bytes / 2**20:,.0f} allowed; make it smaller"
        )


def _decode_pil(
    data: bytes | bytearray, max_bytes: int, header: JpegHeader | None = None, scale: int = 1
) -> torch.Tensor:
    # The class itself has no limit of pixels: _decode_jpeg bounded them.
    with _open(data) if header is None else JpegImageFile(io.BytesIO(data)) as opened:
        if header is None:
            a_pixel = _BYTES_A_PIXEL.get(opened.format or "", _USUAL_BYTES_A_PIXEL)
            needed = opened.height * opened.width * a_pixel
            _refuse_bomb(opened.height, opened.width, needed, max_bytes)
        elif opened.size != (header.width, header.height):
            raise _mismatch(header, opened.width, opened.height)
        if scale > 1:
            opened.draft(opened.mode, (opened.width // scale, opened.height // scale))
        opened.load()  # the tag may follow the pixels; TIFF's is applied, and removed, on loading
        orientation = 1
        with suppress(Exception):  # a damaged tag has no say; PIL raises several types for one
            orientation = opened.getexif().get(_ORIENTATION, 1)
        deep = opened.mode[0] in "IF"
        pixels = torch.from_numpy(_grey_to_8_bits(opened) if deep else _to_rgb(opened))
    return _upright(pixels.permute(2, 0, 1), orientation)


def _open(data: bytes | bytearray) -> Image.Image:
    """Open by content; PIL refuses what has more than twice its own ``MAX_IMAGE_PIXELS``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # bounded by the caller
        return Image.open(io.BytesIO(data), formats=_formats())


@functools.cache
def _formats() -> tuple[str, ...]:
    """PIL's formats, those aside that run other programs."""
    Image.init()
    can_read_heif()
    return tuple(name for name in Image.ID if name not in _RUNS_PROGRAMS)


def _strips(image: Image.Image) -> list[tuple[int, int]]:
    """First row and end of each strip of about ``_STRIP`` pixels."""
    rows = max(1, _STRIP // image.width)
    return [(top, min(top + rows, image.height)) for top in range(0, image.height, rows)]


def _to_rgb(image: Image.Image) -> NDArray[np.uint8]:
    """Convert to uint8 (H, W, 3), a strip at a time: PIL's own conversion needs three copies."""
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    for top, end in _strips(image):
        strip = image.crop((0, top, image.width, end))
        pixels[top:end] = np.asarray(strip if image.mode == "RGB" else strip.convert("RGB"))
    return pixels


def _upright(pixels: torch.Tensor, orientation: int) -> torch.Tensor:
    """Turn (3, H, W) as its EXIF tag says."""
    if orientation not in _TURNS:
        return pixels
    transpose, rows, columns = _TURNS[orientation]
    pixels = pixels.transpose(1, 2) if transpose else pixels
    dims = [dim for dim, flip in ((1, rows), (2, columns)) if flip]
    return pixels.flip(dims) if dims else pixels


def _grey_to_8_bits(image: Image.Image) -> NDArray[np.uint8]:
    """Scale a deep grey image (modes ``I;16*``, ``I``, ``F``) to uint8 (H, W, 3).

    ``I;16`` is full scale at 65,535. The other modes do not say: full scale is the smallest of 1
    (``F`` only), 255 and 65,535 that holds the brightest pixel, or else that pixel.
    """

    def strip(top: int, end: int) -> NDArray[np.float64]:
        grey = np.asarray(image.crop((0, top, image.width, end)), dtype=np.float64)
        return np.nan_to_num(grey, posinf=0.0, neginf=0.0)

    strips = _strips(image)
    if image.mode.startswith("I;16"):
        full = 65_535.0
    else:
        brightest = max(float(strip(*ends).max()) for ends in strips)
        scales = _FULL_SCALES if image.mode == "F" else _FULL_SCALES[1:]
        full = next((float(scale) for scale in scales if brightest <= scale), brightest)
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    for top, end in strips:
        scaled = np.clip(np.rint(strip(top, end) * (255.0 / full)), 0, 255)
        pixels[top:end] = scaled.astype(np.uint8)[..., None]
    return pixels
