"""A TIFF that PIL cannot write."""

import struct

import numpy as np

SHORT, LONG = 3, 4


def planar_tiff(values: np.ndarray) -> bytes:
    """Return a TIFF of uint16 (H, W, 3) with a plane for each channel."""
    height, width, channels = values.shape
    planes = values.transpose(2, 0, 1).astype("<u2").tobytes()
    size = len(planes) // channels
    at = 8 + 2 + 10 * 12 + 4  # after the header and the directory of ten tags
    first = at + 6 + 24
    bits = struct.pack("<3H", 16, 16, 16)
    strips = struct.pack("<6I", *(first + k * size for k in range(3)), *[size] * 3)
    tags = [
        (256, LONG, 1, width), (257, LONG, 1, height), (258, SHORT, 3, at), (259, SHORT, 1, 1),
        (262, SHORT, 1, 2), (273, LONG, 3, at + 6), (277, SHORT, 1, 3), (278, LONG, 1, height),
        (279, LONG, 3, at + 18), (284, SHORT, 1, 2),
    ]  # fmt: skip
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags)
    return b"II*\0" + struct.pack("<I", 8) + directory + bytes(4) + bits + strips + planes
