"""The materials and the camera that every sample scene shares: noise, palettes, relief, photograph.

Nothing here knows a class of scene. Colour, light, exposure, occluders and grain are all drawn
here, from the same distributions whatever the class, so that none of them gives the class away.
Pictures are float32 (S, S, 3) in [0, 1]; maps are float32 (S, S).
"""

from __future__ import annotations

import colorsys

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

Array = NDArray[np.floating]
Rng = np.random.Generator


def noise(rng: Rng, side: int, cells: tuple[float, float], octaves: int = 4) -> Array:
    """Smooth fractal noise: random lattices, each twice as fine and half as strong.

    Args:
        rng: the source of randomness.
        side: S, pixels.
        cells: lattice cells (down, across) the coarsest octave has over the picture.
        octaves: how many lattices are added.

    Returns:
        float32 (S, S), zero mean, standard deviation about 1.
    """
    total = np.zeros((side, side), np.float32)
    for octave in range(octaves):
        shape = [min(side, max(2, round(count * 2**octave)) + 1) for count in cells]
        lattice = Image.fromarray(rng.standard_normal(shape, dtype=np.float32))
        smooth = lattice.resize((side, side), Image.Resampling.BICUBIC)
        total += np.asarray(smooth) * np.float32(0.5**octave)
    total -= total.mean()
    return total / max(float(total.std()), 1e-6)


def palette(rng: Rng, count: int) -> list[Array]:
    """Draw ``count`` colours that go together: neighbouring hues around one, dark to light.

    Returns:
        RGB colours, float32 (3,) in [0, 1], sorted from dark to light.
    """
    hue, spread = rng.random(), rng.choice([0.04, 0.12, 0.3])
    saturation = rng.uniform(0.08, 0.55)
    steps = (np.arange(count) + rng.uniform(0, 1, count)) / count  # one in each band: they differ
    lightness = 0.2 + 0.66 * steps
    colours = []
    for value in lightness:
        near = (hue + rng.normal(0, spread)) % 1.0
        mixed = float(np.clip(saturation * rng.uniform(0.6, 1.4), 0, 0.8))
        colours.append(np.array(colorsys.hls_to_rgb(near, float(value), mixed), np.float32))
    return colours


def shuffled(rng: Rng, colours: list[Array]) -> list[Array]:
    """Return the colours in a random order, so that what is light and what is dark varies."""
    return [colours[i] for i in rng.permutation(len(colours))]


def pixel(colour: Array) -> tuple[int, int, int]:
    """Convert a float colour (3,) in [0, 1] to the 8-bit triple that ImageDraw takes."""
    red, green, blue = (round(float(c) * 255) for c in np.clip(colour, 0, 1))
    return red, green, blue


def relief(rng: Rng, height: Array, albedo: Array, depth: float) -> Array:
    """Light a height map from a random side, as a low lamp lights a wall.

    Args:
        rng: draws the direction and the height of the light.
        height: (S, S), any unit.
        albedo: (S, S, 3) in [0, 1].
        depth: how strongly a slope turns towards the light.

    Returns:
        float32 (S, S, 3): albedo times Lambert's cosine plus an ambient part.
    """
    down, across = np.gradient(height)
    angle, lift = rng.uniform(0, 2 * np.pi), rng.uniform(0.5, 1.2)
    slope = across * np.float32(np.cos(angle)) + down * np.float32(np.sin(angle))
    steep = np.sqrt(1 + depth**2 * (across**2 + down**2))
    light = np.clip((lift + depth * slope) / (steep * np.sqrt(1 + lift**2)), 0, 1.3)
    return albedo * (np.float32(0.35) + np.float32(0.85) * light)[..., None]


def photograph(rng: Rng, picture: Array, size: int) -> NDArray[np.uint8]:
    """Take the photo: occluder, uneven light, shadow, exposure, tint, blur, vignette, grain.

    Args:
        rng: the source of randomness.
        picture: the scene, float32 (S, S, 3) in about [0, 1].
        size: side of the photo in pixels; S is a multiple of it.

    Returns:
        uint8 (size, size, 3).
    """
    side = picture.shape[0]
    canvas = Image.fromarray((np.clip(picture, 0, 1) * 255).astype(np.uint8))
    if rng.random() < 0.35:
        canvas = _occlude(rng, canvas)
    if rng.random() < 0.4:
        canvas = canvas.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1.6) * side / 192))
    photo = np.asarray(canvas.reduce(side // size), np.float32) / 255

    down, across = np.mgrid[-0.5 : 0.5 : size * 1j, -0.5 : 0.5 : size * 1j].astype(np.float32)
    angle = rng.uniform(0, 2 * np.pi)
    along = across * np.cos(angle) + down * np.sin(angle)
    light = 1 + rng.uniform(0, 0.9) * along - rng.uniform(0, 0.6) * (across**2 + down**2)
    if rng.random() < 0.4:  # a soft shadow falls over one side
        edge = along + 0.05 * noise(rng, size, (3, 3), 2) - rng.uniform(-0.25, 0.25)
        light = light * (1 - rng.uniform(0.2, 0.55) / (1 + np.exp(-edge * rng.uniform(15, 60))))
    tint = 1 + rng.uniform(-0.15, 0.15, 3)
    photo = photo * (light[..., None] * (tint * 2 ** rng.uniform(-0.6, 0.7)))
    photo = np.clip(photo, 0, None) ** rng.uniform(0.8, 1.25)
    photo = np.where(photo > 0.8, 1 - 0.2 * np.exp(-(photo - 0.8) / 0.2), photo)  # film shoulder
    grain = rng.standard_normal(photo.shape, dtype=np.float32) * rng.uniform(0.002, 0.02)
    return (np.clip(photo + grain, 0, 1) * 255).astype(np.uint8)


def _occlude(rng: Rng, canvas: Image.Image) -> Image.Image:
    """Put an out-of-focus post, branch or blob in front of the scene, near an edge."""
    side = canvas.width
    mask = Image.new("L", canvas.size, 0)
    draw = ImageDraw.Draw(mask)
    kind, middle = rng.integers(3), rng.choice([0.1, 0.9]) + rng.normal(0, 0.08)
    if kind == 0:
        ends = [(middle * side, -9), ((middle + rng.normal(0, 0.1)) * side, side + 9)]
        draw.line(ends, fill=255, width=int(rng.uniform(0.03, 0.12) * side))
    elif kind == 1:
        points = [(x * side, (middle + rng.normal(0, 0.03)) * side) for x in np.linspace(0, 1, 6)]
        draw.line(points, fill=255, width=int(rng.uniform(0.015, 0.05) * side))
    else:
        radius, across = rng.uniform(0.1, 0.25) * side, rng.random() * side
        box = (across - radius, middle * side - radius, across + radius, middle * side + radius)
        draw.ellipse(box, fill=255)
    mask = mask.filter(ImageFilter.GaussianBlur(side * rng.uniform(0.005, 0.02)))
    front = Image.new("RGB", canvas.size, pixel(palette(rng, 1)[0]))
    return Image.composite(front, canvas, mask)
