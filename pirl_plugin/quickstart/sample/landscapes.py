"""Six classes of view: scenes with depth, drawn back to front into a haze.

Each painter is ``(rng, side) -> float32 (side, side, 3)``; palette, horizon, number, size and place
of things vary freely.
"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from pirl_plugin.quickstart.sample.light import Array, Rng, noise, palette, pixel, shuffled
from pirl_plugin.quickstart.sample.things import draw_boat, draw_fir, draw_flower, draw_tower


def mountains(rng: Rng, side: int) -> Array:
    """Ridges behind ridges, rough with rock, some under snow."""
    colours = palette(rng, 4)
    haze, rock, snow = colours[-1], colours[0], colours[2]
    picture = _sky(rng, side, haze, colours[1])
    layers = int(rng.integers(2, 5))
    down = np.arange(side, dtype=np.float32)[:, None] / side
    white, angle = rng.random() < 0.6, rng.uniform(0, np.pi)
    for layer in range(layers):
        near = (layer + 1) / layers
        ridge = _ridge(rng, side, rng.uniform(1.5, 4), rng.uniform(0.05, 0.13))
        top = 0.15 + 0.65 * (layer + rng.uniform(0, 0.5)) / layers + ridge
        below = down - top
        crags = noise(rng, side, (4, 5), 6)
        lit = np.gradient(crags, axis=1) * np.cos(angle) - np.gradient(crags, axis=0)
        face = rock * (1.1 + rng.uniform(1.2, 2.5) * lit)[..., None]
        cap = (below < rng.uniform(0.04, 0.16) + 0.04 * crags)[..., None]
        face = np.where(cap & white, snow * (1 + lit)[..., None], face)
        face = haze + (face - haze) * (0.25 + 0.75 * near)
        picture = np.where((below > 0)[..., None], face, picture)
    return picture.astype(np.float32)


def forest(rng: Rng, side: int) -> Array:
    """Firs in rows, paler with distance, over a rough ground."""
    colours = palette(rng, 4)
    haze = colours[-1]
    canvas = _canvas(_sky(rng, side, haze, colours[2]))
    draw = ImageDraw.Draw(canvas)
    rows, ground = int(rng.integers(2, 5)), rng.uniform(0.55, 0.8)
    for row in range(rows):
        near = (row + 1) / rows
        base = (ground + 0.3 * (near - 0.5)) * side
        tint = haze + (colours[row % 2] - haze) * (0.3 + 0.7 * near)
        draw.rectangle((0, base, side, side), fill=pixel(tint * 1.1))
        for _ in range(int(rng.uniform(4, 9) / near)):
            tall = side * rng.uniform(0.25, 0.6) * (0.4 + 0.6 * near)
            draw_fir(rng, draw, rng.random() * side, base + rng.normal(0, 3), tall, tint)
    picture = np.asarray(canvas, np.float32) / 255
    rough = 0.1 * noise(rng, side, (34, 34), 2)
    rough[: int((ground - 0.3) * side)] *= 0.2
    return picture * (1 + rough)[..., None]


def city(rng: Rng, side: int) -> Array:
    """Towers with grids of windows, lit or dark."""
    colours = palette(rng, 5)
    haze = colours[int(rng.integers(2, 5))]
    canvas = _canvas(_sky(rng, side, haze, colours[1]))
    draw = ImageDraw.Draw(canvas)
    lit = rng.random()
    layers = int(rng.integers(1, 4))
    for layer in range(layers):
        near = (layer + 1) / layers
        left = -rng.uniform(0, 0.1) * side
        while left < side:
            wide = side * rng.uniform(0.14, 0.34) * (0.6 + 0.4 * near)
            top = side * rng.uniform(0.05, 0.5) + side * 0.25 * (near - 1 / layers)
            wall = shuffled(rng, colours)[0] * rng.uniform(0.7, 1.0)
            wall = haze + (wall - haze) * (0.35 + 0.65 * near)
            draw_tower(rng, draw, (left, top, left + wide, side), wall, lit)
            left += wide * rng.uniform(0.8, 1.3)
    return np.asarray(canvas, np.float32) / 255


def sea(rng: Rng, side: int) -> Array:
    """Waves that grow towards us, a far horizon and sailing boats."""
    colours = palette(rng, 4)
    dark, light = colours[0], colours[2]
    horizon = rng.uniform(0.15, 0.5)
    picture = _sky(rng, side, colours[3], colours[1])
    rows = np.arange(side, dtype=np.float32)[:, None] / side
    depth = np.clip((rows - horizon) / (1 - horizon), 1e-3, 1)
    far = 0.12 / (0.05 + depth)
    swell = noise(rng, side, (2, 3), 2)
    phase = rng.uniform(14, 30) * far + 0.8 * swell + 0.3 * noise(rng, side, (22, 6), 2)
    waves = np.sin(2 * np.pi * phase) + 0.5 * noise(rng, side, (40, 9), 2)
    mix = np.clip(0.45 + rng.uniform(0.2, 0.35) * waves * (0.4 + 0.6 * depth), 0, 1)[..., None]
    water = dark + (light - dark) * mix
    picture = np.where((rows > horizon)[..., None], water, picture)
    canvas = _canvas(picture)
    draw = ImageDraw.Draw(canvas)
    hull, sail = palette(rng, 2) if rng.random() < 0.7 else palette(rng, 2)[::-1]
    for _ in range(int(rng.integers(1, 4))):
        far_down = rng.uniform(0.02, 0.6)
        tall = side * (0.08 + 0.4 * far_down) * rng.uniform(0.8, 1.2)
        base = side * (horizon + (1 - horizon) * far_down)
        draw_boat(rng, draw, rng.uniform(0.08, 0.92) * side, base, tall, (hull, sail))
    return np.asarray(canvas, np.float32) / 255


def balls(rng: Rng, side: int) -> Array:
    """Glossy balls on a checkered ground in front of a plain wall."""
    colours = shuffled(rng, palette(rng, 4))
    down, across = np.mgrid[0 : 1 : side * 1j, 0 : 1 : side * 1j].astype(np.float32)
    horizon = rng.uniform(0.1, 0.45)
    depth = rng.uniform(0.25, 0.6) / np.clip(down - horizon, 2e-3, None)
    tiles, turn = rng.uniform(3, 7), rng.uniform(0, np.pi)
    x, z = (across - rng.uniform(0.2, 0.8)) * depth * tiles, depth * tiles
    u, v = x * np.cos(turn) - z * np.sin(turn), x * np.sin(turn) + z * np.cos(turn)
    checks = ((np.floor(u) + np.floor(v)) % 2)[..., None]
    clear = np.clip(2.2 - depth, 0, 1)[..., None]
    ground = colours[0] + (colours[1] - colours[0]) * (0.5 + (checks - 0.5) * clear)
    wall = colours[2] * (1 + 0.25 * (down - 0.5) + 0.05 * noise(rng, side, (3, 3), 3))[..., None]
    picture = np.where((down > horizon)[..., None], ground, wall)
    light = rng.uniform(-0.7, 0.7)
    spots = np.sort(rng.uniform(horizon + 0.12, 0.95, int(rng.integers(1, 6))))
    for base in spots:  # far to near
        radius = (0.06 + 0.3 * (base - horizon)) * rng.uniform(0.6, 1.2)
        middle = rng.random()
        spread = np.hypot((across - middle + light * radius) / 1.3, (down - base) * 3) / radius
        picture = picture * (1 - 0.6 * np.clip(1.4 - 1.2 * spread, 0, 1))[..., None]
        nx, ny = (across - middle) / radius, (down - (base - 0.85 * radius)) / radius
        round_ = 1 - nx**2 - ny**2
        nz = np.sqrt(np.clip(round_, 0, 1))
        glow = np.clip(light * nx - 0.6 * ny + 0.6 * nz, 0, 1.2)
        shine = np.clip(glow, 0, 1) ** 24 * 0.6
        colour = palette(rng, 1)[0]
        ball = colour * (0.25 + 0.85 * glow)[..., None] + shine[..., None]
        cover = np.clip(round_ * radius * side / 2, 0, 1)[..., None]
        picture = picture + (ball - picture) * cover
    return picture.astype(np.float32)


def flowers(rng: Rng, side: int) -> Array:
    """Flowers with petals round an eye, in long grass."""
    colours = palette(rng, 5)
    orders = ((0, 1, 3, 2), (1, 2, 4, 0), (3, 2, 1, 4))  # petals always differ from the ground
    ground, blade, petal, eye = (colours[i] for i in orders[rng.integers(3)])
    back = ground * (1 + 0.2 * noise(rng, side, (4, 4), 4))[..., None]
    canvas = _canvas(back)
    draw = ImageDraw.Draw(canvas)
    for _ in range(int(rng.uniform(60, 160))):
        x, y, tall = rng.random() * side, rng.random() * side * 1.2, rng.uniform(0.1, 0.3) * side
        tint = pixel((ground + (blade - ground) * rng.uniform(0.1, 0.8)) * rng.uniform(0.8, 1.1))
        draw.line((x, y, x + rng.normal(0, 0.05) * side, y - tall), fill=tint, width=2)
    big = rng.uniform(0.08, 0.18) * side
    count = int(np.clip(0.5 * (side / big) ** 1.5 * rng.uniform(0.7, 1.3), 5, 34))
    petals = int(rng.integers(5, 10))
    for y in np.sort(rng.uniform(0.05, 0.95, count)) * side:
        middle, radius = (rng.random() * side, float(y)), big * rng.uniform(0.6, 1.3)
        draw_flower(rng, draw, middle, radius, petals, (petal, eye))
    return np.asarray(canvas, np.float32) / 255


def _sky(rng: Rng, side: int, low: Array, high: Array) -> Array:
    """A sky from ``high`` above to ``low`` at the horizon, clear or clouded, (side, side, 3)."""
    ramp = np.linspace(0, 1, side, dtype=np.float32)[:, None, None]
    clouds = noise(rng, side, (4, 2.5), 4) * rng.choice([0.0, 0.05, 0.12])
    return (high + (low - high) * ramp) * (1 + clouds)[..., None]


def _ridge(rng: Rng, side: int, peaks: float, tall: float) -> Array:
    """A jagged skyline: midpoint-like 1-D fractal noise, (side,), in parts of the side."""
    across = np.linspace(0, 1, side)
    line = np.zeros(side)
    for octave in range(6):
        knots = max(2, round(peaks * 2**octave)) + 1
        heights = rng.standard_normal(knots) * 0.55**octave
        line += np.interp(across, np.linspace(0, 1, knots), heights)
    return (line * tall).astype(np.float32)


def _canvas(picture: Array) -> Image.Image:
    return Image.fromarray((np.clip(picture, 0, 1) * 255).astype(np.uint8))
