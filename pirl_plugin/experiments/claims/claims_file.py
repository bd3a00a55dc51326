"""What ``claims.json`` holds: the setting of a comparison, its finished runs and the verdicts."""

from __future__ import annotations

from typing import Literal, TypedDict

Metric = Literal["linear_top1", "linear_best_top1", "knn_top1"]
"""Top-1, percent: of the pooled res5 features, of the best layer, of the kNN classifier."""
Axis = Literal["images_seen", "seconds"]
Statistic = Literal["mean", "std"]


class _DataFacts(TypedDict):
    name: str
    classes: int
    train_images: int
    val_images: int
    digest: str


class DataFacts(_DataFacts, total=False):
    """The images, a digest of their names, and how large the training images' files are."""

    train_bytes: int


class Network(TypedDict):
    """Network, sizes in pixels, and what it is trained with."""

    model: str
    image_size: int
    patch_size: int
    patches_crop_size: int
    batch: int
    learning_rate: float
    negatives: int


class _Setting(TypedDict):
    scale: str
    about: str
    network: Network
    data: DataFacts
    images_seen: int
    epochs: int
    evaluated_every: int
    sweep_epochs: int
    methods: dict[str, str]
    seconds: str
    linear_top1: str
    knn_top1: str
    hardware: str
    versions: dict[str, str]


class Setting(_Setting, total=False):
    """What all runs of a comparison were made with; files of earlier versions name no recipe."""

    recipe: str
    precision: str
    command: str


class JobFacts(TypedDict):
    """What identifies a run; ``changed`` is sweep → value."""

    method: str
    changed: dict[str, float]
    seed: int
    epochs: int


class Measured(TypedDict):
    """What was measured of a checkpoint, percent."""

    linear_top1: float
    knn_top1: float
    linear_by_layer: dict[str, float]
    linear_best_top1: float
    best_layer: str


class Seconds(TypedDict):
    """Of pre-training; None where nobody saw them."""

    seconds: float | None
    wall_seconds: float | None


class _Point(Measured, Seconds):
    images_seen: int


class Point(_Point):
    """What a run had reached after an epoch."""

    epoch: int


class Spread(TypedDict):
    """l2 distances of images to their transformed versions, and to those of other images."""

    mean: float
    std: float
    different_mean: float
    different_std: float


class _Invariance(Spread):
    images: int
    compared: str
    density: list[float]  # of the former, over [0, 2]


class Invariance(_Invariance, total=False):
    """The distances of a model.

    Attributes:
        own_statistics: with BatchNorm's statistics of images and of transformed ones apart.
    """

    own_statistics: Spread


class MadeWith(TypedDict):
    """What a run was made with.

    Attributes:
        recipe: digest of the overrides of its runs, without paths, seeds, devices and precision.
    """

    precision: str
    threads: int
    versions: dict[str, str]
    hardware: str
    recipe: str


class _ClaimRow(JobFacts, _Point):
    evaluation_seconds: float
    points: list[Point]


class ClaimRow(_ClaimRow, total=False):
    """A finished run; earlier ones have ``hardware``, or nothing, in place of ``made_with``."""

    invariance: Invariance
    finished: str
    made_with: MadeWith
    hardware: str


class Difference(TypedDict):
    """The mean over seeds of a claim's difference; None where it was not measured."""

    verdict: str
    difference: float | None
    standard_error: float | None


class _Verdict(Difference):
    id: str
    statement: str
    source: str
    interval: list[float | None]
    level: float
    unit: str
    seeds: list[int]


class Verdict(_Verdict, total=False):
    """A claim and what the runs say of it, by the measure it names and by others.

    Attributes:
        note: what a reader of the verdict must know.
        smallest_over: of a claim about several rivals, the one that the difference is to.
    """

    note: str
    smallest_over: str
    by_best_layer: Difference
    by_knn: Difference


class Cost(TypedDict):
    """What images cost the methods, timed side by side: the median of the rounds, and each."""

    seconds_per_1000_images: dict[str, float]
    rounds: dict[str, list[float]]
    hardware: str
    precision: str
    versions: dict[str, str]
    measured: str


class _ClaimsFile(TypedDict):
    setting: Setting
    runs: list[ClaimRow]
    claims: list[Verdict]


class ClaimsFile(_ClaimsFile, total=False):
    """``claims.json``."""

    cost: Cost
