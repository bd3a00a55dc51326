"""A small labeled data set of generated images, for the quickstart and for tests.

It has ten classes of scenes. Only the structure depends on the class: palette, light, scale,
position, occluders and grain have the same distributions in all classes, so color histograms do not
help. Pictures are float32 (S, S, 3) in about [0, 1]; maps are float32 (S, S, 1).
"""

from __future__ import annotations

import colorsys
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter
from scipy.spatial import cKDTree

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
    return _photograph(rng, SCENES[name](rng, size))


def balls(rng: Rng, side: int) -> Array:
    """Draw shaded balls on a checkered floor."""
    floor, tile, wall = _palette(rng, 3)
    down, across = _grid(side)
    horizon = rng.uniform(0.1, 0.4)
    depth = rng.uniform(0.3, 0.6) / np.clip(down - horizon, 0.01, None)
    checks = (np.floor(across * depth * 5 + rng.random()) + np.floor(depth * 5)) % 2
    picture = np.where(down > horizon, _mix(floor, tile, checks), wall)
    light = rng.uniform(-0.7, 0.7)
    # From far to near, so that near balls cover far ones.
    for base in np.sort(rng.uniform(horizon + 0.12, 0.95, rng.integers(2, 6))):
        radius = (0.06 + 0.3 * (base - horizon)) * rng.uniform(0.7, 1.2)
        middle = rng.random()
        x = (across - middle) / radius
        y = (down - base + 0.85 * radius) / radius
        # Shade each pixel by the sphere's height, and darken the floor beside the ball.
        shadow = np.clip(1.2 - np.hypot(x + light, 3 * (down - base) / radius), 0, 1)
        height = np.sqrt(np.clip(1 - x**2 - y**2, 0, 1))
        glow = 0.3 + 0.8 * np.clip(light * x - 0.6 * y + 0.6 * height, 0, 1.2)
        ball = _palette(rng, 1)[0] * glow
        picture = np.where(height > 0, ball, picture * (1 - 0.6 * shadow))
    return picture


def brick_wall(rng: Rng, side: int) -> Array:
    """Draw bricks, each row shifted by half a brick, with sunken mortar."""
    u, v = _surface(rng, side, rng.uniform(4, 9))
    u = u / rng.uniform(1.9, 2.8) + 0.5 * (np.floor(v) % 2)
    # Distance to the brick's nearest edge; below a threshold is mortar.
    edge = np.minimum((0.5 - abs(u % 1 - 0.5)) * 2.3, 0.5 - abs(v % 1 - 0.5))
    body = np.clip((edge - rng.uniform(0.05, 0.11)) / 0.06, 0, 1)
    mortar, brick = _palette(rng, 2)
    color = _mix(mortar, brick, body * (1 + 0.2 * _of_cell(rng.uniform(-1, 1, (64, 64)), u, v)))
    return _relief(rng, color, 2 * body + 0.35 * _noise(rng, side, 24, 3))


def city(rng: Rng, side: int) -> Array:
    """Draw towers with window grids; some windows are lit."""
    sky, haze, *walls = _palette(rng, 5)
    canvas, draw = _canvas(_mix(haze, sky, _grid(side)[0]))
    for near in (0.5, 1.0):  # two rows of towers; the far one is paler
        left = -rng.uniform(0, 0.1) * side
        while left < side:
            wide = side * rng.uniform(0.14, 0.3) * (0.5 + 0.5 * near)
            top = side * (rng.uniform(0.05, 0.45) + 0.25 * (near - 0.5))
            wall = haze + (walls[rng.integers(3)] - haze) * near
            draw.rectangle((left, top, left + wide, side), fill=_pixel(wall))
            step = wide / rng.uniform(3, 6)
            panes = [_pixel(0.4 + 0.6 * wall)] * 2 + [_pixel(wall * 0.45)] * 3
            for y in np.arange(top + step / 2, side, 1.3 * step).tolist():
                for x in np.arange(left + step / 3, left + wide - 0.6 * step, step).tolist():
                    pane = panes[int(rng.random() * 5)]
                    draw.rectangle((x, y, x + 0.6 * step, y + 0.8 * step), fill=pane)
            left += wide * rng.uniform(0.8, 1.3)
    return _floats(canvas)


def flowers(rng: Rng, side: int) -> Array:
    """Draw flowers with petals around a center, in grass."""
    ground, blade, petal, eye = _palette(rng, 4)
    canvas, draw = _canvas(ground * (1 + 0.2 * _noise(rng, side, 4, 4)))
    blades = rng.uniform((0, 0, 0.1), (1, 1.2, 0.3), (100, 3)) * side
    for x, y, tall, lean in np.column_stack([blades, rng.normal(0, 0.05 * side, 100)]).tolist():
        draw.line((x, y, x + lean, y - tall), fill=_pixel(blade), width=max(1, side // 96))
    big = rng.uniform(0.09, 0.18) * side
    petals = int(rng.integers(5, 10))
    for y in np.sort(rng.uniform(0.05, 0.95, int(0.5 * (side / big) ** 1.5))) * side:
        x = rng.random() * side
        radius = big * rng.uniform(0.6, 1.3)
        turn = rng.random()
        # Petals around the center, as circles.
        for angle in turn + 2 * np.pi * np.arange(petals) / petals:
            tip = x + 0.68 * radius * np.cos(angle), y + 0.55 * radius * np.sin(angle)
            draw.circle(tip, 0.27 * radius, fill=_pixel(petal * rng.uniform(0.75, 1.15)))
        draw.circle((x, y), 0.28 * radius, fill=_pixel(eye))
    return _floats(canvas)


def forest(rng: Rng, side: int) -> Array:
    """Draw firs in rows, paler with distance."""
    haze, tree, soil, sky = _palette(rng, 4)
    canvas, draw = _canvas(_mix(sky, haze, _grid(side)[0]))
    ground = rng.uniform(0.5, 0.75)
    for near in (0.4, 0.7, 1.0):
        base = (ground + 0.35 * (near - 0.5)) * side
        draw.rectangle((0, base, side, side), fill=_pixel(haze + (soil - haze) * near))
        tint = haze + (tree - haze) * near
        for x in (rng.random(int(7 / near)) * side).tolist():
            tall = side * rng.uniform(0.3, 0.65) * near
            wide = tall * rng.uniform(0.16, 0.3)
            tiers = int(rng.integers(3, 7))
            for tier in np.arange(tiers) / tiers:
                low = base - tall * (0.1 + 0.75 * tier)
                reach = wide * (1 - 0.8 * tier)
                peak = (x, low - tall * 1.1 / tiers)
                draw.polygon([(x - reach, low), peak, (x + reach, low)], fill=_pixel(tint * 0.8))
                draw.polygon([(x, low), peak, (x + reach, low)], fill=_pixel(tint))
    return _floats(canvas) * (1 + 0.08 * _noise(rng, side, 34, 2))


def mountains(rng: Rng, side: int) -> Array:
    """Draw ridges of rough rock behind each other, paler with distance."""
    haze, rock, sky = _palette(rng, 3)
    down, across = _grid(side)
    picture = _mix(sky, haze, down)
    for near in (0.4, 0.7, 1.0):
        line = np.zeros((side, 1))
        for k in range(1, 7):
            knots = rng.normal(size=2**k + 1) * 0.55**k
            line += np.interp(across[0], np.linspace(0, 1, len(knots)), knots)
        # Everything below the ridge line is rock.
        below = down - (0.7 * near - 0.1 + rng.uniform(0, 0.15) + 0.16 * line)
        slope = np.gradient(_noise(rng, side, 5, 6), 192 / side, axis=1)
        face = haze + (rock * (1.1 + 2 * slope) - haze) * near
        picture = np.where(below > 0, face, picture)
    return picture


def pebbles(rng: Rng, side: int) -> Array:
    """Draw round stones side by side: a jittered Voronoi diagram with domes."""
    u, v = _surface(rng, side, rng.uniform(4, 10))
    stones = rng.uniform(0.08, 0.92, (2, 64, 64)) + np.indices((64, 64))
    far, nearest = cKDTree(stones.reshape(2, -1).T).query(np.concatenate([u, v], axis=2), k=2)
    # The two nearest centers are equally far on the border between two stones.
    gap = np.clip((far[..., 1:] - far[..., :1]) / 0.6, 0, 1)
    dark, light = _palette(rng, 2)
    tone = rng.uniform(0, 1, 64 * 64)[nearest[..., :1]]
    stone = _mix(dark, light, tone)
    return _relief(rng, stone * np.clip(gap * 6, 0.25, 1), 5 * np.sqrt(gap))


def roof_tiles(rng: Rng, side: int) -> Array:
    """Draw rounded tiles that overlap like fish scales."""
    u, v = _surface(rng, side, rng.uniform(4, 9))
    height = np.zeros_like(u)
    tones = np.zeros_like(u)
    tone = rng.uniform(-0.5, 0.5, (64, 64))
    for step in (-2, -1, 0, 1):  # the row above lies over the row below
        row = np.floor(v * 1.6) - step
        column = np.round(u - 0.5 * (row % 2))
        x = u - 0.5 * (row % 2) - column
        y = v - row / 1.6
        far = np.hypot(x, y)
        inside = (far < 0.7) & (y >= -0.05)
        height = np.where(inside, 3 - 8 * far**4 + y, height)
        tones = np.where(inside, _of_cell(tone, column, row), tones)
    gap, tile = _palette(rng, 2)
    return _relief(rng, _mix(gap, tile, 0.6 + 0.4 * tones), height)


def sea(rng: Rng, side: int) -> Array:
    """Draw waves that grow toward the viewer, and sailing boats."""
    water, foam, sky, hull = _palette(rng, 4)
    down, _ = _grid(side)
    horizon = rng.uniform(0.15, 0.5)
    depth = np.clip((down - horizon) / (1 - horizon), 0.001, 1)
    phase = rng.uniform(14, 28) * 0.12 / (0.05 + depth) + 0.8 * _noise(rng, side, 3, 3)
    waves = np.clip(0.5 + 0.35 * np.sin(2 * np.pi * phase) * (0.4 + 0.6 * depth), 0, 1)
    canvas, draw = _canvas(np.where(down > horizon, _mix(water, foam, waves), sky))
    for far in rng.uniform(0.02, 0.6, rng.integers(1, 4)):
        x = rng.uniform(0.08, 0.92) * side
        base = side * (horizon + (1 - horizon) * far)
        tall = side * (0.1 + 0.4 * far) * rng.uniform(0.8, 1.2)
        wide = 0.42 * tall
        deck = base - 0.14 * tall
        way = rng.choice([-1, 1])
        boat = [(x - wide, deck), (x + wide, deck), (x + 0.7 * wide, base), (x - 0.7 * wide, base)]
        draw.polygon(boat, fill=_pixel(hull))
        sail = [(x, base - tall), (x, deck), (x + way * wide, deck)]
        draw.polygon(sail, fill=_pixel(hull * 0.7 + 0.3))
    return _floats(canvas)


def tartan(rng: Rng, side: int) -> Array:
    """Draw a checked, woven cloth in folds."""
    folds = _noise(rng, side, 2, 2)
    u, v = (axis + 0.05 * folds for axis in _surface(rng, side, rng.uniform(2, 4.5)))
    # Warp and weft have the same stripes, and the upper thread alternates.
    threads = np.stack(_palette(rng, 4))[[*rng.permutation(4), *rng.integers(0, 4, 2)]]
    widths = rng.dirichlet(np.full(6, 2.5)).cumsum()[:-1]
    warp, weft = (threads[np.searchsorted(widths, axis[..., 0] % 1)] for axis in (u, v))
    over = 0.5 + 0.5 * np.sin(2 * np.pi * rng.uniform(10, 22) * (u + v))
    return _relief(rng, weft + (warp - weft) * over, 4 * folds)


SCENES: dict[str, Callable[[Rng, int], Array]] = {
    draw.__name__: draw
    for draw in (balls, brick_wall, city, flowers, forest,
                 mountains, pebbles, roof_tiles, sea, tartan)
}  # fmt: skip
"""Class -> its drawing function, ``(rng, side) -> float32 (side, side, 3)``."""


def _photograph(rng: Rng, picture: Array) -> NDArray[np.uint8]:
    """Take the photo: an occluder, blur, uneven light, exposure, tint and grain."""
    canvas, draw = _canvas(picture)
    side = canvas.width
    if rng.random() < 0.35:  # a post near an edge
        x = (rng.choice([0.1, 0.9]) + rng.normal(0, 0.08)) * side
        width = int(rng.uniform(0.02, 0.12) * side)
        draw.line((x, -9, x + 9, side + 9), fill=_pixel(_palette(rng, 1)[0]), width=width)
    photo = _floats(canvas.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.2) * side / 192)))
    down, across = _grid(side)
    angle = rng.uniform(0, 2 * np.pi)
    along = (across - 0.5) * np.cos(angle) + (down - 0.5) * np.sin(angle)
    light = 1 + rng.uniform(0, 0.9) * along
    light = light * np.where(along > rng.uniform(-0.25, 0.6), rng.uniform(0.5, 0.9), 1)  # shadow
    tint = rng.uniform(0.85, 1.15, 3) * 2 ** rng.uniform(-0.6, 0.6)
    grain = rng.standard_normal(photo.shape, np.float32) * np.float32(rng.uniform(0.002, 0.02))
    photo = photo * (light * tint).astype(np.float32) + grain
    return (photo.clip(0, 1) * 255).astype(np.uint8)


def _palette(rng: Rng, count: int) -> list[Array]:
    """Draw ``count`` colors with neighboring hues and different lightness, in random order."""
    hue = rng.random()
    spread = rng.choice([0.04, 0.12, 0.3])
    saturation = rng.uniform(0.08, 0.55)
    levels = 0.2 + 0.66 * (rng.permutation(count) + rng.random(count)) / count
    hues = (hue + rng.normal(0, spread, count)) % 1
    return [
        np.array(colorsys.hls_to_rgb(hue, level, saturation), np.float32)
        for hue, level in zip(hues.tolist(), levels.tolist(), strict=True)
    ]


def _noise(rng: Rng, side: int, cells: int, octaves: int) -> Array:
    """Draw smooth fractal noise (S, S, 1), mean 0, deviation 1, from finer and finer lattices."""
    total = np.zeros((side, side), np.float32)
    for octave in range(octaves):
        count = min(side, cells * 2**octave) + 1
        lattice = Image.fromarray(rng.standard_normal((count, count), dtype=np.float32))
        total += np.asarray(lattice.resize((side, side), Image.Resampling.BICUBIC)) * 0.5**octave
    return ((total - total.mean()) / total.std())[..., None]


def _relief(rng: Rng, color: Array, height: Array) -> Array:
    """Light a height map (S, S, 1) from a random side, with Lambert's cosine."""
    down, across = np.gradient(height, 192 / len(height), axis=(0, 1))
    angle = rng.uniform(0, 2 * np.pi)
    depth = rng.uniform(0.5, 1.2)
    slope = across * np.cos(angle) + down * np.sin(angle)
    steep = np.sqrt(1 + depth**2 * (across**2 + down**2))
    return color * (0.35 + 0.6 * np.clip((1 + depth * slope) / steep, 0, 1.8))


def _surface(rng: Rng, side: int, cells: float) -> tuple[Array, Array]:
    """Return coordinates (across, down), in cells, on a slanted surface with a random origin."""
    down, across = (axis - 0.5 for axis in _grid(side))
    lean = rng.uniform(-0.45, 0.45, 2).tolist()
    angle = rng.normal(0, 0.25)
    distance = 1 + lean[0] * across + lean[1] * down
    u = (across * np.cos(angle) - down * np.sin(angle)) / distance
    v = (across * np.sin(angle) + down * np.cos(angle)) / distance
    return u * cells + rng.uniform(20, 40), v * cells + rng.uniform(20, 40)


def _of_cell(values: Array, u: Array, v: Array) -> Array:
    """Return the value of each pixel's cell, from values (64, 64) that repeat."""
    return values[u.astype(int) % 64, v.astype(int) % 64]


def _grid(side: int) -> tuple[Array, Array]:
    """Return coordinates (down, across) in [0, 1]."""
    line = np.linspace(0, 1, side, dtype=np.float32)
    down, across, _ = np.meshgrid(line, line, 0, indexing="ij")
    return down, across


def _mix(first: Array, second: Array, share: Array) -> Array:
    return first + (second - first) * share


def _canvas(picture: Array) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    image = Image.fromarray((picture.clip(0, 1) * 255).astype(np.uint8))
    return image, ImageDraw.Draw(image)


def _floats(image: Image.Image) -> Array:
    return np.asarray(image, np.float32) / 255


def _pixel(color: Array) -> tuple[int, ...]:
    return tuple(int(255 * min(max(value, 0), 1)) for value in color.tolist())
