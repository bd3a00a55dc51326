"""Objects in the views of ``landscapes``: flowers, firs, towers and boats.

Each function draws one thing with random proportions; lengths and places are in pixels.
"""

from __future__ import annotations

import numpy as np
from PIL import ImageDraw

from pirl_plugin.quickstart.sample.light import Array, Rng, pixel


def draw_flower(
    rng: Rng,
    draw: ImageDraw.ImageDraw,
    middle: tuple[float, float],
    radius: float,
    petals: int,
    colours: tuple[Array, Array],
) -> None:
    """A slanted flower of ``petals`` petals at ``middle`` (x, y); ``colours`` are petal and eye."""
    x, y = middle
    petal, eye = colours
    flat, turn = rng.uniform(0.55, 1), rng.uniform(0, np.pi)
    half = np.pi / petals * 0.85
    steps = np.linspace(0, np.pi, 8)
    for angle in turn + 2 * np.pi * np.arange(petals) / petals:
        spread = angle + half * np.cos(steps)
        reach = radius * (0.35 + 0.65 * np.sin(steps) ** 0.7)
        points = zip(x + reach * np.cos(spread), y + flat * reach * np.sin(spread), strict=True)
        outline = [(x, y), *((float(px), float(py)) for px, py in points)]
        draw.polygon(outline, fill=pixel(petal * rng.uniform(0.75, 1.15)))
    small = radius * 0.28
    draw.ellipse((x - small, y - small * flat, x + small, y + small * flat), fill=pixel(eye))


def draw_fir(
    rng: Rng, draw: ImageDraw.ImageDraw, x: float, base: float, tall: float, tint: Array
) -> None:
    """A fir whose foot is at (x, base) and which is ``tall`` pixels high, lit from the right."""
    wide, tiers = tall * rng.uniform(0.16, 0.3), int(rng.integers(3, 7))
    trunk = tall * 0.03
    draw.rectangle((x - trunk, base - 0.2 * tall, x + trunk, base), fill=pixel(tint * 0.6))
    for tier in range(tiers):
        low = base - tall * (0.1 + 0.75 * tier / tiers)
        reach = wide * (1 - 0.8 * tier / tiers)
        top = low - tall * 1.5 / tiers * 0.75
        draw.polygon([(x - reach, low), (x, top), (x + reach, low)], fill=pixel(tint * 0.8))
        draw.polygon([(x, low), (x, top), (x + reach, low)], fill=pixel(tint))


def draw_tower(
    rng: Rng,
    draw: ImageDraw.ImageDraw,
    box: tuple[float, float, float, float],
    wall: Array,
    lit: float,
) -> None:
    """A tower with windows in ``box`` (left, top, right, bottom), a share ``lit`` of them lit."""
    left, top, right, bottom = box
    draw.rectangle(box, fill=pixel(wall))
    draw.rectangle((left, top, left + 0.2 * (right - left), bottom), fill=pixel(wall * 0.8))
    across = int(rng.integers(3, 7))
    step = (right - left) / (across + 0.5)
    tall = step * rng.uniform(0.8, 1.6)
    pane, gap = rng.uniform(0.45, 0.75), 0.3 * step
    glass = (wall * 0.45, 0.35 + 0.65 * wall)
    for down in range(int((bottom - top) / tall) + 1):
        for column in range(across):
            x, y = left + gap + column * step, top + gap + down * tall
            colour = glass[int(rng.random() < lit)]
            draw.rectangle((x, y, x + pane * step, y + pane * tall), fill=pixel(colour))


def draw_boat(
    rng: Rng,
    draw: ImageDraw.ImageDraw,
    x: float,
    base: float,
    tall: float,
    colours: tuple[Array, Array],
) -> None:
    """A sailing boat at (x, base), ``tall`` pixels to the top; ``colours`` are hull and sail."""
    hull, sail = colours
    lean, way = rng.normal(0, 0.06) * tall, rng.choice([-1, 1])
    long, deep = 0.42 * tall, 0.14 * tall
    deck = [(x - long, base - deep), (x + long, base - deep)]
    draw.polygon([*deck, (x + 0.7 * long, base), (x - 0.7 * long, base)], fill=pixel(hull))
    top = (x + lean, base - tall)
    foot = base - 1.4 * deep
    draw.polygon([top, (x, foot), (x + way * 0.9 * long, foot)], fill=pixel(sail))
    draw.polygon([top, (x - way * 3, foot), (x - way * 0.6 * long, foot)], fill=pixel(sail * 0.8))
