"""Pre-train a timm vision transformer with PIRL (jigsaw) at 64 px, and compare kNN accuracies.

    python extra_scripts/claims/vit.py --data DIR --out vit.json

``DIR`` holds ``train/CLASS/*`` and ``val/CLASS/*``. Each seed gives the kNN accuracy (k = 20) on
``val`` of the pre-trained network and of the same network untrained, each with half the width of
the 95 % interval for the test images. Finished seeds are recorded in the output; run the same
command again to continue.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import timm
import torch
from recorded import RecordedRows
from torch import nn
from torch.utils.data import DataLoader

import pirl_plugin as pirl
from pirl_plugin.evaluation.page import Accuracy
from pirl_plugin.system.arguments import Parser

# Views in multiples of the transformer's patches: 8 × 8 and 3 × 3 tokens of 8 px.
VIEWS: dict[str, Any] = {
    "image_size": 64,
    "patches_crop_size": 96,
    "patch_size": 24,
    "image_scale": [0.2, 1.0],
}
NETWORK: dict[str, Any] = {"img_size": 64, "patch_size": 8, "depth": 6, "dynamic_img_size": True}
BATCH = 64
RATE = 5e-4  # AdamW, after a warm-up over a tenth of the steps, then along a cosine
WEIGHT_DECAY = 0.05


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


def measure(trunk: nn.Module, folder: Path) -> dict[str, float]:
    """Return the kNN accuracy on ``val``, in percent, and half of its interval's width."""
    features = {}
    labels = {}
    for split in ("train", "val"):
        data = pirl.ImageDataset(folder / split, pirl.ImageViews(64))
        computed, readable = pirl.extract_features(trunk, data, size=VIEWS["image_size"])
        features[split] = computed[readable]
        labels[split] = torch.as_tensor(data.labels())[readable]
    top1 = pirl.knn_accuracy(features["train"], labels["train"], features["val"], labels["val"])
    error = Accuracy("kNN", top1, len(labels["val"])).error
    return {"knn_top1": round(top1, 2), "error": round(error, 2)}


def run(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Measure a network before and after pre-training."""
    torch.manual_seed(seed)
    trunk = timm.create_model("vit_tiny_patch16_224", num_classes=0, **NETWORK)
    data = pirl.ImageDataset(options.data / "train", pirl.JigsawViews(**VIEWS))
    untrained = measure(trunk, options.data)
    start = time.process_time()
    train(trunk, data, options.epochs)
    seconds = round(time.process_time() - start)
    pirl.save_trunk(trunk, options.out.with_suffix(f".seed{seed}.torch"))
    return {
        "untrained": untrained,
        "pirl": measure(trunk, options.data),
        "cpu_seconds": seconds,
    }


def main() -> None:
    """Run whatever is missing in the output."""
    parser = Parser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    setting: dict[str, Any] = {"views": VIEWS, "network": NETWORK}
    setting |= {"epochs": options.epochs, "batch": BATCH, "rate": RATE, "decay": WEIGHT_DECAY}
    rows = RecordedRows(options.out, {"setting": setting, "runs": []})
    for seed in options.seeds:
        rows.add("runs", {"seed": seed}, partial(run, options, seed))


if __name__ == "__main__":
    main()
