"""The rows in ``starts.json``: names, meaning, order and time."""

from __future__ import annotations

import argparse
import re
import statistics
from dataclasses import dataclass
from typing import Any

import pandas as pd
from intervals import Accuracy, unpacked

FROM_SCRATCH = {
    "npid": "NPID",
    "pirl_rotation": "PIRL (rotation)",
    "pirl_jigsaw": "PIRL (jigsaw)",
}
VARIANT_LABELS = {
    "no_flip": "no flips",
    "wide": "large crops",  # 50 to 100 % of the area
    "small_crops": "small crops",  # 20 to 100 %
    "no_jitter": "no photometric changes",
    "plain": "plain views",  # large crops, no photometric changes
    "jitter": "brightness and contrast jitter",
    "as_photos": "photo views",  # small crops, brightness and contrast jitter
    "four": "4 of 9 patches",
    "mlp_blur": "MLP heads and blur",
    "cold": "temperature 0.07",
}
VARIANTS = {
    f"{method}_{variant}": f"{name}, {change}"
    for method, name in FROM_SCRATCH.items()
    for variant, change in VARIANT_LABELS.items()
}
LABELS = {
    "mean_deviation": "mean and deviation of each channel, no network",
    "histograms": "histograms, no network",
    "random": "untrained",
    **FROM_SCRATCH,
    **VARIANTS,
    "published": "published weights, frozen",
    "published_components": "published weights on three principal components, frozen",
    "published_adapted": "published weights, first layer adapted, frozen",
    "npid continued": "published weights, then NPID",
    "pirl_jigsaw continued": "published weights, then PIRL",
}
HANDMADE = ("mean_deviation", "histograms")
PUBLISHED = ("published", "published_components", "published_adapted")
WITHOUT_SEED = (*HANDMADE, *PUBLISHED)  # a seed only draws the labels of a fraction
ALL_LABELS = {"knn": "kNN", "linear": "linear"}
FEW_LABELS = {"linear_0.05": "5 %", "linear_0.1": "10 %"}
HEAD_EPOCHS = 2  # as in starting_points.py

NAME = re.compile(
    r"(tuned/)?([a-z_]+?)(_continued)?(?::(?:(time)|(10|20|40|80)/)?(\d+))?(?:@(\d+))?"
)


def base_method(start: str) -> str:
    """Return the method, such as ``npid`` for ``npid_wide``; empty if nothing is trained."""
    return next((method for method in FROM_SCRATCH if start.startswith(method)), "")


@dataclass(frozen=True)
class Row:
    """What a row's seeds share.

    Attributes:
        start: a key in ``LABELS``.
        epochs: number of epochs; 0: nothing was trained.
        size: side of the images in pixels.
        is_tuned: whether it is fine-tuned on few labels instead of frozen.
        of: number of epochs in the run that passed through this row's state; 0: ``epochs``. Its
            learning rate is not yet 0, so it is no run of ``epochs`` epochs.
    """

    start: str
    epochs: int
    size: int
    is_tuned: bool = False
    of: int = 0

    @property
    def title(self) -> str:
        """The row's name in tables, such as ``NPID, 20 epochs, 64 px``."""
        words = [LABELS[self.start]]
        if self.of:
            words.append(f"{self.epochs} of {self.of} epochs")
        elif self.epochs:
            words.append("1 epoch" if self.epochs == 1 else f"{self.epochs} epochs")
        title = ", ".join([*words, f"{self.size} px"])
        return f"fine-tuned: {title.replace(', frozen', '')}" if self.is_tuned else title

    @property
    def order(self) -> tuple[bool, int, int, int, int]:
        """Frozen rows first, in the order of ``LABELS``."""
        return (self.is_tuned, [*LABELS].index(self.start), self.of, self.epochs, self.size)


@dataclass(frozen=True)
class RowName:
    """A row as named on the command line, ``[tuned/]START[_continued][:[time]EPOCHS][@SIZE]``.

    ``START:AT/EPOCHS`` is the state of a run after ``AT`` of its epochs: 10, 20, 40 or 80.

    Attributes:
        start: a key in ``LABELS``.
        epochs: number of epochs.
        of: number of epochs in the run that the row is a state of, or 0.
        is_time: whether the epochs are PIRL's (jigsaw), and this row gets as much processor time.
        size: side of the images in pixels; None: the comparison's.
        is_tuned: whether it is fine-tuned on few labels.
    """

    start: str
    epochs: int
    of: int
    is_time: bool
    size: int | None
    is_tuned: bool

    @classmethod
    def parse(cls, text: str) -> RowName:
        """Parse a command-line argument."""
        match = NAME.fullmatch(text)
        if match is None or (start := match[2] + (match[3] or "").replace("_", " ")) not in LABELS:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a row: [tuned/]START[:EPOCHS][@SIZE], where START is one of "
                f"{', '.join(LABELS).replace(' continued', '_continued')}"
            )
        size = int(match[7]) if match[7] else None
        epochs, of = (match[5], match[6]) if match[5] else (match[6] or 0, 0)
        return cls(start, int(epochs), int(of), bool(match[4]), size, bool(match[1]))

    def row(self, costs: dict[str, float], size: int) -> Row:
        """Return the row; its time may follow from the cost per image."""
        epochs = self.epochs
        if self.is_time:
            epochs = round(epochs * costs["pirl_jigsaw"] / costs[self.start])
        return Row(self.start, epochs, self.size or size, self.is_tuned, self.of)


class Accuracies:
    """The accuracies in a data set's rows.

    Args:
        content: content of ``starts.json``.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content
        self.photos = content["setting"]["test_images"]
        self._measured: dict[tuple[Row, str], dict[int, tuple[float, str | None]]] = {}
        for row in [*content["frozen"], *content.get("states", [])]:
            for measure in (*ALL_LABELS, *FEW_LABELS):
                for layer in ("last", "best"):
                    right = row[measure].get(f"{layer}_right")
                    self._add(row, False, f"{measure} {layer}", row[measure][layer], right)
        for row in content["fine_tuned"]:
            measure = f"linear_{row['fraction']} best"
            self._add(row, True, measure, row["top1"], row.get("right"))

    def _add(
        self, row: dict[str, Any], is_tuned: bool, measure: str, top1: float, right: str | None
    ) -> None:
        named = Row(row["start"], row["passes"], row["size"], is_tuned, row.get("of", 0))
        key = (named, measure)
        self._measured.setdefault(key, {})[row["seed"]] = (top1, right)

    @property
    def rows(self) -> list[Row]:
        """The measured rows, in table order."""
        return sorted({row for row, _ in self._measured}, key=lambda row: row.order)

    def of(self, row: Row, measure: str) -> Accuracy | None:
        """Return a row's measure, such as ``knn best``; None if it was not measured."""
        by_seed = self._measured.get((row, measure))
        if by_seed is None:
            return None
        top1 = pd.Series({seed: accuracy for seed, (accuracy, _) in sorted(by_seed.items())})
        right = {
            seed: unpacked(digits, self.photos)
            for seed, (_, digits) in by_seed.items()
            if digits is not None
        }
        is_fixed = row.start in WITHOUT_SEED and measure.split()[0] in ALL_LABELS
        return Accuracy(top1, self.photos, right, is_fixed)


def seconds_of(contents: list[dict[str, Any]], row: Row) -> float | None:
    """Return a row's processor seconds: the median over the sets with measured costs.

    It follows from the cost per image, and includes training, the bank's first rows, and computing
    the features of all photos once. The median excludes a set whose costs were measured beside
    other work.
    """
    seconds = [
        _seconds(content, row)
        for content in contents
        if content["costs"] and (row.start in content["costs"] or not row.epochs)
    ]
    return statistics.median(seconds) if seconds else None


def _seconds(content: dict[str, Any], row: Row) -> float:
    setting = content["setting"]
    costs = content["costs"]
    num_train = setting["train_images"]
    num_photos = num_train + setting["test_images"]
    training = costs.get(row.start, 0.0)
    if row.start.startswith("published") or "continued" in row.start:
        # Costs scale with the number of pixels.
        reading = costs["published features"] * (row.size / setting["published_size"]) ** 2
        training *= (row.size / setting["image_size"]) ** 2
    else:
        reading = costs[row.start if row.start in HANDMADE else "features"]
    milliseconds = num_photos * reading
    if row.epochs:
        milliseconds += num_train * (row.epochs * training + reading)
        if "continued" in row.start:
            milliseconds += num_train * HEAD_EPOCHS * reading
    return milliseconds / 1000
