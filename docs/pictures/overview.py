"""Draw docs/pictures/overview.png: the image, its jigsaw, and the memory bank's other images.

python docs/pictures/overview.py
"""

import io
from pathlib import Path

import matplotlib
import numpy as np
import torch
from PIL import Image

matplotlib.use("agg")
import matplotlib.pyplot as plt

from pirl_plugin.quickstart.sample import SCENES, sample_scene
from pirl_plugin.views.jigsaw import JigsawViews

SIDE = 384
INK, PULL, PUSH = "#1f2328", "#1a7f37", "#b35900"


def show(axes, pixels, title=None):
    """One picture without axes; pixels uint8 (H, W, 3)."""
    axes.imshow(pixels)
    axes.set_axis_off()
    if title:
        axes.set_title(title, fontsize=18, color=INK)


def main():
    """Write the picture beside this file."""
    scene = sample_scene("dots", np.random.default_rng(11), SIDE)
    pixels = torch.from_numpy(scene).permute(2, 0, 1).contiguous()
    views = JigsawViews()(pixels, np.random.default_rng(4))
    image = views["images"].permute(1, 2, 0).numpy()
    patches = views["patches"].permute(0, 2, 3, 1).numpy()

    figure = plt.figure(figsize=(10.4, 3.6), dpi=140)
    rows = figure.add_gridspec(3, 11, wspace=0.12, hspace=0.12, left=0.01, right=0.99, top=0.86)
    show(figure.add_subplot(rows[:, 0:3]), image, "image $I$")
    for i in range(9):
        axes = figure.add_subplot(rows[i // 3, 4 + i % 3])
        show(axes, patches[i], "transformed $I^t$" if i == 1 else None)
    others = [name for name in SCENES if name != "dots"]
    for i in range(9):
        rng = np.random.default_rng(20 + i)
        axes = figure.add_subplot(rows[i // 3, 8 + i % 3])
        title = "memory bank" if i == 1 else None
        show(axes, sample_scene(others[i], rng, 96), title)
    figure.text(0.325, 0.54, "pull\ntogether", ha="center", va="center", color=PULL, fontsize=14)
    figure.text(0.682, 0.54, "push\napart", ha="center", va="center", color=PUSH, fontsize=14)
    style = {"arrowstyle": "<->", "linewidth": 1.6}
    for x, color in ((0.325, PULL), (0.682, PUSH)):
        axes = figure.add_axes((x - 0.03, 0.36, 0.06, 0.08))
        axes.set_axis_off()
        axes.annotate("", (1, 0.5), (0, 0.5), arrowprops={**style, "color": color})
    drawn = io.BytesIO()
    figure.savefig(drawn, facecolor="white")
    Image.open(drawn).convert("RGB").quantize(160).save(Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main()
