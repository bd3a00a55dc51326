"""The rows of ``starts.json``: what they measure, their names, their order and their time."""

from __future__ import annotations

from typing import Any

import pandas as pd
from peers_report import spread

LABELS = {
    "histograms": "histograms, no network",
    "random": "untrained",
    "npid": "NPID",
    "pirl_rotation": "PIRL (rotation)",
    "pirl_jigsaw": "PIRL (jigsaw)",
    "published": "published weights, frozen",
    "npid continued": "published weights, then NPID",
    "pirl_jigsaw continued": "published weights, then PIRL",
}
MEASURES = {
    "knn": "kNN",
    "linear": "linear",
    "linear_0.05": "linear, 5 %",
    "linear_0.1": "linear, 10 %",
}
ROW = ["start", "passes", "size"]  # what the seeds of a row share
HEAD_PASSES = 2  # as in starting_points.py


def frozen_rows(content: dict[str, Any]) -> pd.DataFrame:
    """Return the rows of frozen features, a column for each measure at the last and best layer.

    Args:
        content: of ``starts.json``.
    """
    rows = []
    for row in content["frozen"]:
        flat = {key: row[key] for key in (*ROW, "seed")}
        for measure in MEASURES:
            flat[f"{measure} last"] = row[measure]["last"]
            flat[f"{measure} best"] = row[measure]["best"]
            flat[f"{measure} layer"] = row[measure]["layer"]
        rows.append(flat)
    return pd.DataFrame(rows)


def seconds_of(content: dict[str, Any], start: str, passes: int, size: int) -> float:
    """Return the processor time of a row, seconds, from the costs of an image.

    It holds the training, the bank's first rows, and reading the features of all photos once.
    """
    setting = content["setting"]
    costs = content["costs"]
    num_train = setting["train_images"]
    num_photos = num_train + setting["test_images"]
    reading = "features"
    if start == "histograms":
        reading = "histograms"
    elif start.startswith("published") or "continued" in start:
        # Images of another size cost in proportion to their pixels.
        reading = "published features"
    cost = costs[reading]
    training = costs.get(start, 0.0)
    if reading == "published features":
        cost *= (size / setting["published_size"]) ** 2
        training *= (size / setting["image_size"]) ** 2
    milliseconds = num_photos * cost
    if passes:
        milliseconds += num_train * (passes * training + cost)
        if "continued" in start:
            milliseconds += num_train * HEAD_PASSES * cost
    return milliseconds / 1000


def row_title(start: str, passes: int, size: int) -> str:
    """Return a row's name, such as ``NPID, 20 passes, 64 px``."""
    words = [LABELS[start]]
    if passes:
        words.append("1 pass" if passes == 1 else f"{passes} passes")
    return ", ".join([*words, f"{size} px"])


def in_order(rows: pd.DataFrame) -> list[tuple[tuple[str, int, int], pd.DataFrame]]:
    """Group rows by what their seeds share, in the order of ``LABELS``."""
    groups = {key: part for key, part in rows.groupby(ROW)}
    starts = list(LABELS)
    return sorted(groups.items(), key=lambda item: (starts.index(item[0][0]), *item[0][1:]))


def accuracy_of(seeds: pd.Series) -> str:
    """Return mean ± standard deviation; histograms and published weights depend on no seed."""
    return spread(seeds.drop_duplicates() if seeds.nunique() == 1 else seeds)
