"""A small labeled data set of generated images, for the quickstart and for tests.

A class is a pattern: a height for each point on a surface. Scale, slant, warp, colors and light
have the same distributions in all classes. A random quantile of the height divides the pattern's
two colors, so color histograms do not help.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pirl_plugin.system.files import UNFINISHED, naming_failures, remove

Array = NDArray[np.floating]
Rng = np.random.Generator


def write_sample_dataset(
    out: Path, seed: int = 0, num_train: int = 2000, num_val: int = 400, size: int = 96
) -> None:
    """Write ``out/{train,val}/CLASS/NUMBER.jpg``; class sizes differ by at most one image.

    The same parameters give the same pictures. An existing folder is left unchanged.

    Args:
        out: the folder; its parents are created.
        seed: a different seed gives different pictures from the same classes.
        num_train: number of images under ``train``.
        num_val: number of images under ``val``.
        size: side of the square images in pixels.

    Raises:
        FailedWrite: an image cannot be written; no image is left.
    """
    if out.exists():
        return
    draft = out.with_name(f"{UNFINISHED}{out.name}")
    remove(draft)  # of a killed process
    try:
        with naming_failures(out):
            _draw_images(draft, seed, {"train": num_train, "val": num_val}, size)
            draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _draw_images(folder: Path, seed: int, num_images: dict[str, int], size: int) -> None:
    for part, (split, count) in enumerate(num_images.items()):
        for image in range(count):
            number, label = divmod(image, len(SCENES))
            name = list(SCENES)[label]
            rng = np.random.default_rng([seed, part, label, number])
            file = folder / split / name / f"{number:05d}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(sample_scene(name, rng, size)).save(file, quality=90)


def sample_scene(name: str, rng: Rng, size: int) -> NDArray[np.uint8]:
    """Draw one scene from the class ``name``, a key in ``SCENES``: uint8 (size, size, 3)."""
    u, v = _surface(rng, size)
    picture = _paint(rng, SCENES[name](u, v))
    return _photograph(rng, picture)


# Each pattern returns the height at coordinates u (across) and v (down), in cells.


def bricks(u: Array, v: Array) -> Array:
    """Draw rows of bricks, each shifted by half a brick."""
    shifted = 0.5 * u + 0.5 * (np.floor(v) % 2)
    return np.minimum(2 * _to_whole(shifted), _to_whole(v))


def checkers(u: Array, v: Array) -> Array:
    """Draw a chessboard."""
    return np.sin(np.pi * u) * np.sin(np.pi * v)


def cups(u: Array, v: Array) -> Array:
    """Draw half disks in rows, each shifted by half a distance."""
    row = np.floor(2 * v)
    return np.hypot(_to_whole(u + row / 2), v - row / 2)


def diamonds(u: Array, v: Array) -> Array:
    """Draw tall diamonds side by side."""
    return abs(_to_whole(u) + _to_whole(v / 2) - 0.5)


def dots(u: Array, v: Array) -> Array:
    """Draw round dots in rows, each shifted by half a distance."""
    return -np.hypot(_to_whole(u + 0.5 * (np.round(v) % 2)), _to_whole(v))


def fences(u: Array, v: Array) -> Array:
    """Draw bars across and down that cross."""
    return np.maximum(np.cos(2 * np.pi * u), np.cos(2 * np.pi * v))


def rings(u: Array, v: Array) -> Array:
    """Draw rings around points that are five cells apart."""
    return np.cos(2 * np.pi * 5 * np.hypot(_to_whole(u / 5), _to_whole(v / 5)))


def stripes(u: Array, v: Array) -> Array:
    """Draw stripes, alternately high and low."""
    return np.cos(2 * np.pi * v) + np.cos(np.pi * v)


def waves(u: Array, v: Array) -> Array:
    """Draw waves with round crests."""
    return np.cos(2 * np.pi * v + 2 * np.sin(2 * np.pi * u))


def zigzags(u: Array, v: Array) -> Array:
    """Draw zigzag lines."""
    return np.cos(2 * np.pi * (v + 1.4 * _to_whole(u)))


SCENES: dict[str, Callable[[Array, Array], Array]] = {
    draw.__name__: draw
    for draw in (bricks, checkers, cups, diamonds, dots, fences, rings, stripes, waves, zigzags)
}
"""Class -> its pattern: coordinates (S, S) across and down, in cells -> height (S, S)."""


def _surface(rng: Rng, side: int) -> tuple[Array, Array]:
    """Return coordinates (across, down), in cells, on a slanted and warped surface."""
    across, down = _grid(side)
    lean = rng.uniform(-0.2, 0.2, 2)
    cells = rng.uniform(3, 5) / (1 + lean[0] * across + lean[1] * down)
    angle = rng.normal(0, 0.1)
    warp = rng.uniform(0, 0.06)
    u = rng.uniform(0, 64) + cells * _project(across, down, angle) + warp * _noise(rng, side, 3)
    v = rng.uniform(0, 64) + cells * _project(down, -across, angle) + warp * _noise(rng, side, 3)
    return u, v


def _paint(rng: Rng, height: Array) -> Array:
    """Color the pattern, and light its relief from a random side: float (S, S, 3)."""
    side = len(height)
    dark = rng.uniform(0.1, 0.5, 3)
    light = rng.uniform(0.5, 0.9, 3)
    height = (height - np.quantile(height, rng.uniform(0.4, 0.6))) / height.std()
    share = np.clip(0.5 + rng.uniform(1.5, 4) * height, 0, 1)[..., None]
    rough = height + 0.1 * _noise(rng, side, 32)
    slope_down, slope_across = np.gradient(rough, 12 / side)  # per twelfth of the side
    slope = _project(slope_across, slope_down, rng.uniform(0, 2 * np.pi))
    shade = 1 + 0.7 * np.tanh(rng.uniform(0.2, 0.6) * slope)
    return (dark + share * (light - dark)) * shade[..., None]


def _photograph(rng: Rng, picture: Array) -> NDArray[np.uint8]:
    """Add uneven light, exposure and grain."""
    along = _project(*_grid(len(picture)), rng.uniform(0, 2 * np.pi))
    light = 2 ** rng.uniform(-0.5, 0.5) * (1 + rng.uniform(0, 0.6) * along)
    grain = rng.normal(0, rng.uniform(0.002, 0.02), picture.shape)
    photo = picture * light[..., None] + grain
    return (photo.clip(0, 1) * 255).astype(np.uint8)


def _noise(rng: Rng, side: int, cells: int) -> Array:
    """Draw smooth noise (S, S) from a lattice of normal numbers."""
    lattice = Image.fromarray(rng.standard_normal((cells + 1, cells + 1), dtype=np.float32))
    return np.asarray(lattice.resize((side, side), Image.Resampling.BICUBIC))


def _to_whole(values: Array) -> Array:
    """Return the distance to the nearest whole number, a wave from 0 to 0.5."""
    return abs(values - np.round(values))


def _grid(side: int) -> tuple[Array, Array]:
    """Return coordinates (across, down) from -0.5 to 0.5."""
    line = np.linspace(-0.5, 0.5, side)
    across, down = np.meshgrid(line, line)
    return across, down


def _project(across: Array, down: Array, angle: float) -> Array:
    """Return the coordinate along a direction: at angle 0 across, at π / 2 down."""
    return across * np.cos(angle) + down * np.sin(angle)
