"""Pre-train a timm vision transformer with PIRL (jigsaw) at 64 px, and compare kNN accuracies.

    python extra_scripts/claims/vit.py --data DIR --out vit.json

``DIR`` holds ``train/CLASS/*`` and ``val/CLASS/*``. For each seed, the kNN classifier (k = 20) is
evaluated on ``val`` with the features of the network before and after pre-training. The intervals
are for seeds and test images. Finished seeds are recorded in the output; run the same command again
to continue.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import timm
import torch
from intervals import Accuracy, difference, interval_of, packed, unpacked
from numpy.typing import NDArray
from recorded import RecordedRows
from torch import nn
from torch.utils.data import DataLoader

import pirl_plugin as pirl
from pirl_plugin.evaluation.knn import find_neighbors, vote
from pirl_plugin.system.arguments import Parser

# Views in multiples of the transformer's patches of 16 px: 4 × 4 tokens, and 2 × 2 for each of the
# jigsaw's patches.
VIEWS: dict[str, Any] = {
    "image_size": 64,
    "patches_crop_size": 120,
    "patch_size": 32,
    "image_scale": [0.2, 1.0],
}
NETWORK: dict[str, Any] = {
    "img_size": 64,
    "patch_size": 16,
    "depth": 6,
    "dynamic_img_size": True,
    "global_pool": "avg",
    "class_token": False,
}
BATCH = 64
RATE = 1e-3  # AdamW: a warm-up over a tenth of the steps, then a cosine schedule
WEIGHT_DECAY = 0.05
NEIGHBORS = 20


def train(trunk: nn.Module, data: pirl.ImageDataset, epochs: int) -> None:
    """Pre-train a trunk in place."""
    loader = DataLoader(
        data, min(BATCH, len(data)), shuffle=True, drop_last=True, collate_fn=pirl.collate_views
    )
    model = pirl.PIRL(trunk, data)
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, RATE, epochs * len(loader), pct_start=0.1
    )
    model.fill_bank(loader)
    for epoch in range(epochs):
        data.set_epoch(epoch)
        for batch in loader:
            loss = model(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            model.update()
        print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)


def classify(trunk: nn.Module, folder: Path) -> NDArray[np.bool_]:
    """Return which images in ``val`` the kNN classifier classifies correctly."""
    features = {}
    labels = {}
    for split in ("train", "val"):
        data = pirl.ImageDataset(folder / split, pirl.ImageViews(64))
        computed, readable = pirl.extract_features(trunk, data, size=VIEWS["image_size"])
        features[split] = computed[readable]
        labels[split] = torch.as_tensor(data.labels())[readable]
    rows, cosines = find_neighbors(features["val"], features["train"], NEIGHBORS)
    is_right = vote(rows, cosines, labels["train"]) == labels["val"]
    return is_right.numpy()


def run(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Evaluate a network before and after pre-training."""
    torch.manual_seed(seed)
    trunk = timm.create_model("vit_tiny_patch16_224", num_classes=0, **NETWORK)
    data = pirl.ImageDataset(options.data / "train", pirl.JigsawViews(**VIEWS))
    untrained = classify(trunk, options.data)
    start = time.process_time()
    train(trunk, data, options.epochs)
    seconds = round(time.process_time() - start)
    pirl.save_trunk(trunk, options.out.with_suffix(f".seed{seed}.torch"))
    pretrained = classify(trunk, options.data)
    return {
        "images": len(data),
        "photos": len(untrained),
        "untrained": packed(untrained),
        "pirl": packed(pretrained),
        "cpu_seconds": seconds,
    }


def print_accuracies(runs: list[dict[str, Any]]) -> None:
    """Print the mean accuracies over the seeds, and the gain, with intervals."""
    photos = runs[0]["photos"]
    accuracies = {}
    for network in ("untrained", "pirl"):
        right = {row["seed"]: unpacked(row[network], photos) for row in runs}
        top1 = pd.Series({seed: 100 * of_seed.mean() for seed, of_seed in right.items()})
        accuracies[network] = Accuracy(top1, photos, right)
        print(network, interval_of(accuracies[network]).text())
    gain = difference(accuracies["pirl"], accuracies["untrained"])
    print("gain", gain.text("+") if gain else "unknown")


def main() -> None:
    """Run whatever is missing in the output."""
    parser = Parser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    setting: dict[str, Any] = {"views": VIEWS, "network": NETWORK}
    setting |= {"epochs": options.epochs, "batch": BATCH, "rate": RATE, "decay": WEIGHT_DECAY}
    rows = RecordedRows(options.out, {"setting": setting, "runs": []})
    for seed in options.seeds:
        rows.add("runs", {"seed": seed}, partial(run, options, seed))
    print_accuracies(rows.content["runs"])


if __name__ == "__main__":
    main()
