"""Rows of ``claims.json`` made by hand."""

from __future__ import annotations

from typing import Any

LAYERS = ("conv1", "res2", "res3", "res4", "res5", "res5avg")
SETTING = {
    "scale": "quick",
    "about": "a small network",
    "network": {"negatives": 1024},
    "data": {
        "name": "photos",
        "classes": 2,
        "train_images": 10_000,
        "val_images": 100,
        "digest": "0123",
    },
    "images_seen": 40_000,
    "epochs": 4,
    "evaluated_every": 1,
    "sweep_epochs": 2,
    "seconds": "CPU seconds",
    "linear_top1": "percent",
    "knn_top1": "percent",
    "hardware": "a processor",
    "versions": {"python": "3.11"},
    "command": "pirl-plugin claims",
}


def row(
    method: str,
    seed: int,
    top1: float,
    epochs: int = 4,
    seconds: float = 40.0,
    changed: dict[str, float] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A finished run, whose accuracy rises evenly over four points to ``top1``."""
    layers = dict.fromkeys(LAYERS, top1 - 1) | {"res5avg": top1}
    points = [
        {
            "epoch": epochs * part / 4,
            "images_seen": 10_000 * epochs * part / 4,
            "seconds": seconds * part / 4,
            "wall_seconds": seconds * part / 4,
            "linear_top1": top1 * part / 4,
            "linear_best_top1": top1 * part / 4,
            "linear_by_layer": {layer: share * part / 4 for layer, share in layers.items()},
            "knn_top1": top1 * part / 8,
        }
        for part in ((1, 2, 3, 4) if epochs else (4,))
    ]
    return {
        "method": method,
        "changed": changed or {},
        "seed": seed,
        "epochs": epochs,
        "images_seen": 10_000 * epochs,
        "seconds": seconds,
        "wall_seconds": seconds,
        "linear_top1": top1,
        "linear_best_top1": top1,
        "knn_top1": top1 / 2,
        "linear_by_layer": layers,
        "best_layer": "res5avg",
        "evaluation_seconds": 4.0,
        "points": points,
        **more,
    }
