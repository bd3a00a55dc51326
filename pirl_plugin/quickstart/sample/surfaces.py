"""Four classes of close-up: surfaces whose structure, not colour, names them.

Each painter is ``(rng, side) -> float32 (side, side, 3)``; scale, slant, colour and light vary
freely.
"""

from __future__ import annotations

import numpy as np

from pirl_plugin.quickstart.sample.light import Array, Rng, noise, palette, relief, shuffled


def brick_wall(rng: Rng, side: int) -> Array:
    """Bricks in running bond, each of its own shade, with sunken mortar."""
    u, v = _surface(rng, side, rng.uniform(4, 10))
    row = np.floor(v)
    u = u / rng.uniform(1.9, 2.8) + 0.5 * (row % 2)
    column = np.floor(u)
    joint = rng.uniform(0.05, 0.11)
    edge = np.minimum(_to_edge(u) * 2.3, _to_edge(v))
    body = np.clip((edge - joint) / 0.06, 0, 1)
    brick, mortar = shuffled(rng, palette(rng, 2))
    shade = 1 + rng.uniform(0.08, 0.3) * _hash(column, row)
    albedo = body[..., None] * brick * shade[..., None] + (1 - body)[..., None] * mortar
    height = body * 2 + 0.35 * noise(rng, side, (24, 24), 3)
    return relief(rng, height, _weather(rng, albedo), rng.uniform(0.4, 1.2))


def roof_tiles(rng: Rng, side: int) -> Array:
    """Rounded tiles that overlap like the scales of a fish."""
    u, v = _surface(rng, side, rng.uniform(4.5, 10))
    height = np.zeros_like(u)
    shade, found = np.zeros_like(u), np.zeros(u.shape, bool)
    radius = rng.uniform(0.64, 0.76)
    stretch = rng.uniform(0.75, 1.1)
    for step in (1, 0, -1, -2):  # the row above lies over the row below
        row = np.floor(v * 1.6) - step
        shift = 0.5 * (row % 2)
        column = np.round(u - shift)
        far = np.hypot(u - shift - column, (v - row / 1.6) * stretch) / radius
        inside = (far < 1) & (v >= row / 1.6 - 0.05) & ~found
        height[inside] = (1 - 0.8 * far**4)[inside] + 0.3 * (v - row / 1.6)[inside]
        shade[inside] = _hash(column, row)[inside]
        found |= inside
    colours = shuffled(rng, palette(rng, 2))
    tone = 1 + rng.uniform(0.08, 0.3) * shade
    albedo = np.where(found[..., None], colours[0] * tone[..., None], 0.3 * colours[0])
    height = height * 3 + 0.2 * noise(rng, side, (20, 20), 3)
    return relief(rng, height, _weather(rng, albedo), rng.uniform(0.5, 1.3))


def pebbles(rng: Rng, side: int) -> Array:
    """Round stones packed on a beach: a jittered Voronoi diagram with domes."""
    u, v = _surface(rng, side, rng.uniform(4, 11))
    first = np.full_like(u, 9)
    second, shade = first.copy(), np.zeros_like(u)
    for down in (-1, 0, 1):
        for across in (-1, 0, 1):
            column, row = np.floor(u) + across, np.floor(v) + down
            du = column + 0.5 + 0.42 * _hash(column, row) - u
            dv = row + 0.5 + 0.42 * _hash(row + 71, column) - v
            far = np.sqrt(du * du + dv * dv)
            nearer = far < first
            second = np.where(nearer, first, np.minimum(second, far))
            shade = np.where(nearer, _hash(column + 13, row + 5), shade)
            first = np.minimum(first, far)
    gap = second - first
    dome = np.sqrt(np.clip(gap / rng.uniform(0.4, 0.8), 0, 1))
    colours = shuffled(rng, palette(rng, 3))
    blend = np.clip(0.5 + 0.5 * shade, 0, 1)[..., None]
    albedo = (blend * colours[0] + (1 - blend) * colours[1]) * np.clip(gap * 9, 0.25, 1)[..., None]
    height = dome * 5 + 0.25 * noise(rng, side, (24, 24), 3)
    return relief(rng, height, albedo, rng.uniform(0.4, 1.0))


def tartan(rng: Rng, side: int) -> Array:
    """A checked cloth with a woven grain, lying in folds."""
    u, v = _surface(rng, side, rng.uniform(2, 4.5))
    folds = noise(rng, side, (1.5, 1.5), 2)
    bend = rng.uniform(0.02, 0.1)
    u, v = u + bend * folds, v - bend * folds
    colours = shuffled(rng, palette(rng, 4))
    widths = rng.dirichlet(np.full(6, 2.5)).cumsum()
    order = rng.integers(0, 4, 6)
    order[:4] = rng.permutation(4)
    threads = np.stack(colours)[order]
    warp = threads[np.searchsorted(widths[:-1], u % 1)]
    weft = threads[np.searchsorted(widths[:-1], v % 1)]
    count = rng.uniform(10, 22)
    over = 0.5 + 0.5 * np.sin(2 * np.pi * count * (u + v))[..., None]
    albedo = over * warp + (1 - over) * weft
    height = folds * rng.uniform(1, 6) + 0.3 * over[..., 0]
    return relief(rng, height.astype(np.float32), albedo, rng.uniform(0.5, 1.2))


def _surface(rng: Rng, side: int, cells: float) -> tuple[Array, Array]:
    """Coordinates (across, down) in cells on a surface seen at a slant and from a random place."""
    down, across = np.mgrid[-0.5 : 0.5 : side * 1j, -0.5 : 0.5 : side * 1j].astype(np.float32)
    lean = rng.uniform(-0.45, 0.45, 2)
    distance = 1 + lean[0] * across + lean[1] * down
    angle = rng.normal(0, 0.25)
    u = (across * np.cos(angle) - down * np.sin(angle)) / distance
    v = (across * np.sin(angle) + down * np.cos(angle)) / distance
    place = rng.uniform(20, 40, 2)
    return (u * cells + place[0]).astype(np.float32), (v * cells + place[1]).astype(np.float32)


def _to_edge(coordinate: Array) -> Array:
    """Distance to the nearest whole number, in cells: 0 at a joint, 0.5 in the middle."""
    return 0.5 - np.abs(coordinate % 1 - 0.5)


def _hash(first: Array, second: Array) -> Array:
    """A fixed pseudo-random number in [-1, 1) for each pair of whole numbers."""
    mixed = np.sin(first.astype(np.float64) * 12.9898 + second * 78.233) * 43758.5453
    return (2 * (mixed - np.floor(mixed)) - 1).astype(np.float32)


def _weather(rng: Rng, albedo: Array) -> Array:
    """Stains: slow patches that are darker or lighter than the rest."""
    stain = noise(rng, albedo.shape[0], (3, 3), 4) * rng.uniform(0.02, 0.14)
    return (albedo * (1 + stain)[..., None]).astype(np.float32)
