"""Draw docs/pictures/cells.png: cells, and the cells that a network trained without labels finds.

    git clone https://github.com/minh-doan/MLCP CELLS
    python extra_scripts/claims/image_sets.py cells CELLS cells
    python docs/pictures/cells.py cells

The images have three channels of 16 bits: bright field, a DNA stain and dark field. They are from
T. Blasi et al., "Label-free cell cycle analysis for high-throughput imaging flow cytometry", Nature
Communications 7, 10256 (2016); LICENSE-cells.txt has the license. Training takes minutes on a CPU.
"""

import sys
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torch.utils.data import DataLoader

import pirl_plugin as pirl
from pirl_plugin.evaluation.knn import find_neighbors
from pirl_plugin.evaluation.pictures import choose_display

EPOCHS = 40
NEIGHBORS = 7
TILE, GAP, LABEL = 96, 4, 116  # pixels
PHASES = ("G1", "S_phase", "G2", "Prophase")
SEED = 0


def train(data):
    """Return a trunk trained with the recipe of the examples; its views only crop and flip."""
    trunk = pirl.WideResNet(10, width=0.25, in_channels=3)
    loader = DataLoader(data, 32, shuffle=True, drop_last=True, collate_fn=pirl.collate_views)
    model = pirl.PIRL(trunk, data)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    model.fill_bank(loader)
    for epoch in range(EPOCHS):
        data.set_epoch(epoch)
        for batch in loader:
            loss = model(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            model.update()
        print(epoch, loss.item(), flush=True)
    return trunk


def nearest(trunk, source):
    """Return the rows of each cell's nearest others, int64 (N, NEIGHBORS)."""
    features, _ = pirl.extract_features(trunk, source, size=40)
    rows, _ = find_neighbors(features, features, NEIGHBORS, leave_one_out=True)
    return rows


def draw(source, labels, rows):
    """Write the picture: each row has a cell, and the cells nearest to it."""
    display = choose_display(source, source.usual_reading, (0, 1, 2))
    width = LABEL + (NEIGHBORS + 1) * (TILE + GAP) + 3 * GAP
    picture = Image.new("RGB", (width, 24 + len(PHASES) * (TILE + GAP)), "white")
    text = ImageDraw.Draw(picture)
    font = ImageFont.load_default(14)
    text.text((LABEL, 2), "cell", "black", font)
    text.text((LABEL + TILE + 4 * GAP, 2), "the most similar other cells", "black", font)
    for line, phase in enumerate(PHASES):
        top = 24 + line * (TILE + GAP)
        text.text((0, top + TILE // 2 - 8), phase.replace("_phase", " phase"), "black", font)
        query = int((labels == source.classes.index(phase)).nonzero()[0])
        for column, row in enumerate([query, *rows[query].tolist()]):
            pixels, _ = source[row]
            tile = Image.fromarray(colors(display, pixels))
            left = LABEL + column * (TILE + GAP) + (3 * GAP if column else 0)
            picture.paste(tile.resize((TILE, TILE), Image.Resampling.BICUBIC), (left, top))
    picture.quantize(200).save(Path(__file__).with_suffix(".png"), optimize=True)


def colors(display, pixels):
    """Return bright field in gray, with the DNA stain in magenta, uint8 (H, W, 3)."""
    bright, stain, _ = display.colors(pixels).float()
    green = (bright - stain).clamp(0, 255)
    return torch.stack([bright, green, bright], dim=-1).byte().numpy()


def main(folder):
    """Train, and write the picture beside this file."""
    torch.manual_seed(SEED)
    views = pirl.JigsawViews(40, image_scale=(0.5, 1.0), jitter_p=0, photometric_p=0, grayscale_p=0)
    data = pirl.ImageDataset(Path(folder, "train"), views)
    labels = data.labels()
    untrained = nearest(pirl.WideResNet(10, width=0.25, in_channels=3), data.source)
    rows = nearest(train(data), data.source)
    for name, found in (("PIRL", rows), ("untrained", untrained)):
        share = (labels[found] == labels[:, None]).float().mean()
        print(name, f"{100 * share:.0f} % of them are in the same phase")
    draw(data.source, labels, rows)


if __name__ == "__main__":
    main(sys.argv[1])
