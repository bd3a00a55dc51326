"""Draw docs/pictures/neighbors.png: images, and the images that a trained network finds nearest.

python docs/pictures/neighbors.py

The images are the quickstart's sample images. The network is trained with the recipe of
docs/examples/plain_pytorch.py, which takes minutes on a CPU.
"""

import io
import tempfile
from pathlib import Path

import matplotlib
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.transforms.v2.functional import resize

matplotlib.use("agg")
import matplotlib.pyplot as plt

import pirl_plugin as pirl
from pirl_plugin.evaluation.knn import find_neighbors, same_class_share
from pirl_plugin.quickstart.sample import write_sample_dataset

IMAGES, EPOCHS = 2000, 16
ROWS, NEIGHBORS = 5, 7
GREEN, RED = "#1a7f37", "#cf222e"


def train(trunk, data):
    """Train a trunk with the recipe of the examples."""
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


def nearest(trunk, data):
    """Return the rows of each image's nearest others, int64 (N, NEIGHBORS)."""
    images = torch.stack([resize(image, [64, 64]) for image, _ in data.source])
    trunk.eval()
    with torch.no_grad():
        parts = [trunk(pirl.normalize_images(part)) for part in images.split(100)]
    trunk.train()
    features = torch.cat(parts)
    rows, _ = find_neighbors(features, features, NEIGHBORS, leave_one_out=True)
    return rows


def main():
    """Train, and write the picture beside this file."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as temporary:
        scenes = Path(temporary, "scenes")
        write_sample_dataset(scenes, num_train=IMAGES, num_val=20)
        views = pirl.JigsawViews(
            image_size=64, patches_crop_size=96, patch_size=24, image_scale=(0.2, 1.0)
        )
        data = pirl.ImageDataset(scenes / "train", views)
        labels = data.labels()
        trunk = pirl.WideResNet(10, width=0.5)
        before = same_class_share(nearest(trunk, data), labels, labels)
        train(trunk, data)
        rows = nearest(trunk, data)
        after = same_class_share(rows, labels, labels)
        draw(data, labels, rows, before, after)


def draw(data, labels, rows, before, after):
    """Write the picture: in each row an image, and its neighbors in green or red frames."""
    size = (1.0 * (NEIGHBORS + 1.15), 1.02 * ROWS + 0.5)
    figure, grid = plt.subplots(ROWS, NEIGHBORS + 1, figsize=size, dpi=100)
    # Two images of a class would show the same: take the first image of every second class.
    queries = [int((labels == label).nonzero()[0]) for label in range(0, 2 * ROWS, 2)]
    for axes, query in zip(grid, queries, strict=True):
        for place, row in zip(axes, [query, *rows[query].tolist()], strict=True):
            place.imshow(data.source[row][0].permute(1, 2, 0))
            place.set(xticks=[], yticks=[])
            color = "white"
            if row != query:
                color = GREEN if labels[row] == labels[query] else RED
            for side in place.spines.values():
                side.set(color=color, linewidth=4)
    grid[0, 0].set_title("image", fontsize=11)
    title = (
        f"nearest others; of the same class: {after:.0f} % (untrained {before:.0f} %, chance 10 %)"
    )
    grid[0, 1].set_title(title, fontsize=11, loc="left")
    drawn = io.BytesIO()
    figure.savefig(drawn, facecolor="white", bbox_inches="tight")
    Image.open(drawn).convert("RGB").quantize(160).save(Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main()
