"""Small images: encoded ones with a pattern, and files identified by gray level."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from pirl_plugin.images.decode import decode


def save_gray(path: Path, level: int = 0, size: tuple[int, int] = (12, 8)) -> None:
    """Write an image (width, height) in the format given by the suffix; create missing folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (level, level, level)).save(path)


def encoded(
    kind: str, mode: str = "RGB", size: tuple[int, int] = (40, 30), **options: Any
) -> bytes:
    """Return an encoded smooth image (width, height) with random colors."""
    coarse = np.random.default_rng(0).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).convert(mode)
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def decode_image(data: bytes, *arguments: Any, **options: Any) -> torch.Tensor:
    """Return only the pixels of a decoded image."""
    return decode(data, *arguments, **options).pixels
