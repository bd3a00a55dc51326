"""Small images identified by gray level."""

from pathlib import Path

from PIL import Image


def save_gray(path: Path, level: int = 0, size: tuple[int, int] = (12, 8)) -> None:
    """Write an image (width, height) in the format given by the suffix; create missing folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (level, level, level)).save(path)
