"""TIFFs that PIL cannot write."""

import struct

import numpy as np

SHORT, LONG = 3, 4


def tiff(values: np.ndarray, planes: bool = False, photometric: int = 2) -> bytes:
    """Return an uncompressed TIFF.

    Args:
        values: unsigned integers (H, W, channels).
        planes: store channels in separate planes instead of interleaving them.
        photometric: 0 for gray with white at 0, 1 for gray with black at 0, 2 for RGB.
    """
    height, width, channels = values.shape
    little = values.astype(values.dtype.newbyteorder("<"))
    pixels = (little.transpose(2, 0, 1) if planes else little).tobytes()
    strips = channels if planes else 1
    size = len(pixels) // strips
    tags = [
        (256, LONG, [width]), (257, LONG, [height]), (258, SHORT, [8 * values.itemsize] * channels),
        (259, SHORT, [1]), (262, SHORT, [photometric]), (273, LONG, [0] * strips),
        (277, SHORT, [channels]), (278, LONG, [height]), (279, LONG, [size] * strips),
        (284, SHORT, [2 if planes else 1]),
    ]  # fmt: skip
    after_directory = 8 + 2 + 12 * len(tags) + 4
    longer = [tag for tag in tags if len(_packed(*tag[1:])) > 4]
    first_pixel = after_directory + sum(len(_packed(*tag[1:])) for tag in longer)
    directory = struct.pack("<H", len(tags))
    values_after = b""
    for number, kind, numbers in tags:
        offsets = [first_pixel + k * size for k in range(strips)]
        data = _packed(kind, offsets if number == 273 else numbers)
        field = data.ljust(4, b"\0")
        if len(data) > 4:
            field = struct.pack("<I", after_directory + len(values_after))
            values_after += data
        directory += struct.pack("<HHI", number, kind, len(numbers)) + field
    return b"II*\0" + struct.pack("<I", 8) + directory + bytes(4) + values_after + pixels


def _packed(kind: int, numbers: list[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}{'H' if kind == SHORT else 'I'}", *numbers)
