"""A small labeled data set of generated images, for the quickstart and for tests.

A class is a pattern: a height for each point on a surface. Scale, slant, warp, colors, light and an
occluder have the same distributions in all classes. A random quantile of the height divides the
pattern's two colors, so color histograms do not help.
"""

from __future__ import annotations

import colorsys
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pirl_plugin.system.files import UNFINISHED, naming_failures, remove

Array = NDArray[np.floating]
Rng = np.random.Generator

_CELLS = np.random.default_rng(0).random((64, 64))
"""A random number for each cell of a surface; the surface repeats after 64 cells."""


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


def arcs(u: Array, v: Array) -> Array:
    """Draw two quarter circles in each cell, around opposite corners; they join to paths."""
    x = u % 1
    x = np.where(_of_cell(u, v) < 0.5, x, 1 - x)
    y = v % 1
    return -np.minimum(abs(np.hypot(x, y) - 0.5), abs(np.hypot(1 - x, 1 - y) - 0.5))


def basket(u: Array, v: Array) -> Array:
    """Draw bundles of canes that go over and under each other."""
    is_upright = (np.floor(u) + np.floor(v)) % 2 == 0
    along = np.where(is_upright, v, u)
    across = np.where(is_upright, u, v)
    return np.sin(np.pi * (along % 1)) * (0.5 + _to_whole(3 * across))


def bricks(u: Array, v: Array) -> Array:
    """Draw rows of bricks, each shifted by half a brick."""
    shifted = 0.5 * u + 0.5 * (np.floor(v) % 2)
    return np.minimum(2 * _to_whole(shifted), _to_whole(v))


def checkers(u: Array, v: Array) -> Array:
    """Draw a chessboard."""
    return np.sin(np.pi * u) * np.sin(np.pi * v)


def dots(u: Array, v: Array) -> Array:
    """Draw round dots in rows, each shifted by half a distance."""
    return -np.hypot(_to_whole(u + 0.5 * (np.round(v) % 2)), _to_whole(v))


def flowers(u: Array, v: Array) -> Array:
    """Draw flowers with five petals, turned at random."""
    x = u % 1 - 0.5
    y = v % 1 - 0.5
    radius = np.hypot(x, y)
    turn = np.arctan2(y, x) + 2 * np.pi * _of_cell(u, v)
    petals = 0.32 + 0.11 * np.cos(5 * turn) - radius
    return np.minimum(petals, 2 * radius)


def pebbles(u: Array, v: Array) -> Array:
    """Draw stones side by side: the cells of a Voronoi diagram."""
    distances = []
    for step_u, step_v in np.ndindex(3, 3):  # the stones in the neighboring cells
        column = np.floor(u) + step_u - 1
        row = np.floor(v) + step_v - 1
        x = column + _of_cell(column, row)
        y = row + _of_cell(row, column)
        distances.append(np.hypot(x - u, y - v))
    nearest, second = np.partition(distances, 1, axis=0)[:2]
    return np.sqrt(second - nearest)  # 0 on the border between two stones


def rings(u: Array, v: Array) -> Array:
    """Draw rings around points that are five cells apart."""
    return np.cos(2 * np.pi * 5 * np.hypot(_to_whole(u / 5), _to_whole(v / 5)))


def scales(u: Array, v: Array) -> Array:
    """Draw round tiles that overlap like fish scales."""
    row = np.floor(2 * v)
    y = v - row / 2
    upper = np.hypot(_to_whole(u + row / 2), y)
    lower = np.hypot(_to_whole(u + row / 2 + 0.5), y) - 0.5
    return np.where(upper < 0.5, upper, lower)


def zigzags(u: Array, v: Array) -> Array:
    """Draw zigzag lines."""
    return np.cos(2 * np.pi * (v + 1.4 * _to_whole(u)))


SCENES: dict[str, Callable[[Array, Array], Array]] = {
    draw.__name__: draw
    for draw in (arcs, basket, bricks, checkers, dots, flowers, pebbles, rings, scales, zigzags)
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
    dark, light = _palette(rng)
    height = (height - np.quantile(height, rng.uniform(0.4, 0.6))) / height.std()
    share = np.clip(0.5 + rng.uniform(1.5, 4) * height, 0, 1)[..., None]
    rough = height + 0.1 * _noise(rng, side, 32)
    slope_down, slope_across = np.gradient(rough, 12 / side)  # per twelfth of the side
    slope = _project(slope_across, slope_down, rng.uniform(0, 2 * np.pi))
    shade = 1 + 0.7 * np.tanh(rng.uniform(0.2, 0.6) * slope)
    return (dark + share * (light - dark)) * shade[..., None]


def _photograph(rng: Rng, picture: Array) -> NDArray[np.uint8]:
    """Add a post in front, a shadow, uneven light, exposure, tint and grain."""
    across, down = _grid(len(picture))
    if rng.random() < 0.35:
        away = _project(across, down, rng.uniform(0, 2 * np.pi)) - rng.uniform(0.2, 0.4)
        picture[abs(away) < rng.uniform(0.01, 0.06)] = rng.choice(_palette(rng))
    along = _project(across, down, rng.uniform(0, 2 * np.pi))
    shadow = np.where(along > rng.uniform(-0.25, 0.6), rng.uniform(0.6, 0.9), 1)
    light = shadow * (1 + rng.uniform(0, 0.6) * along)
    tint = rng.uniform(0.85, 1.15, 3) * 2 ** rng.uniform(-0.5, 0.5)
    grain = rng.normal(0, rng.uniform(0.002, 0.02), picture.shape)
    photo = picture * light[..., None] * tint + grain
    return (photo.clip(0, 1) * 255).astype(np.uint8)


def _palette(rng: Rng) -> Array:
    """Draw a dark and a light color with neighboring hues: (2, 3)."""
    hue = rng.random()
    spread = rng.choice([0.04, 0.12, 0.3])
    saturation = rng.uniform(0.08, 0.5)
    levels = (rng.uniform(0.2, 0.45), rng.uniform(0.6, 0.85))
    colors = [
        colorsys.hls_to_rgb(rng.normal(hue, spread) % 1, level, saturation) for level in levels
    ]
    return np.array(colors)


def _noise(rng: Rng, side: int, cells: int) -> Array:
    """Draw smooth noise (S, S) from a lattice of normal numbers."""
    lattice = Image.fromarray(rng.standard_normal((cells + 1, cells + 1), dtype=np.float32))
    return np.asarray(lattice.resize((side, side), Image.Resampling.BICUBIC))


def _of_cell(u: Array, v: Array) -> Array:
    """Return the random number of the cell at each point."""
    return _CELLS[np.floor(u).astype(int) % 64, np.floor(v).astype(int) % 64]


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
