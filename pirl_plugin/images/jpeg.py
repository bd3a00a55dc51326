"""The header of a JPEG, read as libjpeg reads it, before anything is allocated for the image.

A header reader that is laxer than the decoder can be deceived: restart markers, which have no
length, read as if they had one, hide the frame header that the decoder finds. So the markers are
followed here exactly as in libjpeg's ``jdmarker.c`` (``next_marker``, ``read_markers``).
"""

from typing import NamedTuple

# Start of frame: all of 0xC0 … 0xCF but DHT, JPG and DAC.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
# TEM and RST0 … RST7 are followed by no length.
_BARE = frozenset({0x01, *range(0xD0, 0xD8)})
_SOI, _EOI, _SOS, _APP1 = 0xD8, 0xD9, 0xDA, 0xE1
_EXIF = b"Exif\0\0"


class JpegHeader(NamedTuple):
    """What the decoder will find.

    Attributes:
        height: pixels, before any turn by EXIF.
        width: likewise.
        components: 1 grey, 3 colour, 4 CMYK.
        buffered: the decoder keeps the coefficients of the whole image, 2 bytes each: progressive
            images, and those whose components come in scans of their own.
        first_app1_is_exif: whether EXIF, where there is any, is in the first APP1 segment: XMP, of
            which it may be the second, has another one.
    """

    height: int
    width: int
    components: int
    buffered: bool
    first_app1_is_exif: bool = True


def read_jpeg_header(data: bytes | bytearray) -> JpegHeader | None:
    """Read a JPEG's frame header.

    Args:
        data: the file's content, starting with ``FF D8``.

    Returns:
        The header, or None if libjpeg would find no frame followed by a scan.
    """
    frame: tuple[int, int, int, int] | None = None
    first_app1_is_exif: bool | None = None
    at, size = 2, len(data)
    while True:
        if at < size and data[at] != 0xFF:  # the decoder skips what is no marker
            at = data.find(b"\xff", at)
        while 0 <= at < size and data[at] == 0xFF:  # fill bytes
            at += 1
        if not 0 <= at < size - 2:
            return None
        marker = data[at]
        at += 1
        if marker == 0 or marker in _BARE:
            continue
        if marker in (_SOI, _EOI):
            return None
        length = max(data[at] << 8 | data[at + 1], 2)  # which holds itself
        if marker == _SOS:
            if frame is None or at + 2 >= size:
                return None
            kind, height, width, components = frame
            buffered = kind in _PROGRESSIVE or data[at + 2] < components
            return JpegHeader(height, width, components, buffered, first_app1_is_exif is not False)
        if marker == _APP1 and first_app1_is_exif is None:
            first_app1_is_exif = data.startswith(_EXIF, at + 2)
        if marker in _FRAMES:
            if frame is not None or at + 8 > size:
                return None
            height = data[at + 3] << 8 | data[at + 4]
            width = data[at + 5] << 8 | data[at + 6]
            frame = (marker, height, width, data[at + 7])
        at += length
