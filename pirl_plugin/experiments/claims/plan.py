"""Which models are trained: the main comparison, then the sweeps of Sec. 4 on PIRL (jigsaw)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pirl_plugin.experiments.claims.methods import METHODS
from pirl_plugin.experiments.sweep.results import label
from pirl_plugin.experiments.sweep.values import NUM_ORDERS, SWEEPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pirl_plugin.experiments.claims.claims_file import JobFacts

# Sweep → values of PIRL (jigsaw); N is cut at half the data set. |T| = 100 is the jigsaw
# classifier's, and its values are those that it can take too.
SWEEP_VALUES: dict[str, tuple[float, ...]] = {
    "lambda": (0, 0.25, 0.5, 0.75, 1),
    "permutations": (1, 10, 100, 1_000, NUM_ORDERS),
    "negatives": (16, 64, 256, 1_024, 4_096),
}
JIGSAW_PERMUTATIONS = (10, 100, 1_000)
# PIRL and the classifier of the same transformation, whose distances are compared (Fig. 4).
PAIRS = (("pirl_jigsaw", "jigsaw"), ("pirl_rotation", "rotation"))


@dataclass(frozen=True)
class Job:
    """One model: pre-trained, then evaluated at several points.

    Attributes:
        method: one of ``METHODS``.
        seed: of everything.
        epochs: its length.
        changed: sweep → value, where it is not the method's own.
    """

    method: str
    seed: int
    epochs: int
    changed: tuple[tuple[str, float], ...] = field(default=())

    @property
    def name(self) -> str:
        """Name of its folder: ``pirl_jigsaw_lambda0.25_12epochs_seed0``."""
        values = "".join(f"_{sweep}{value}" for sweep, value in self.changed)
        return f"{self.method}{values}_{self.epochs}epochs_seed{self.seed}"

    @property
    def title(self) -> str:
        """For people: ``PIRL (jigsaw), λ = 0.25, 12 epochs, seed 0``."""
        values = [f"{SWEEPS[sweep].symbol} = {label(value)}" for sweep, value in self.changed]
        length = [f"{self.epochs} epochs"] if self.epochs else []
        return ", ".join([METHODS[self.method].label, *values, *length, f"seed {self.seed}"])

    @property
    def overrides(self) -> tuple[str, ...]:
        """What the sweep sets in its pre-training."""
        return tuple(f"{SWEEPS[sweep].key}={value}" for sweep, value in self.changed)

    def row(self) -> JobFacts:
        """What identifies it in ``claims.json``."""
        return {
            "method": self.method,
            "changed": dict(self.changed),
            "seed": self.seed,
            "epochs": self.epochs,
        }


def job_of(row: JobFacts) -> Job:
    """The job that a row of ``claims.json`` is the result of."""
    changed = tuple(sorted((row.get("changed") or {}).items()))
    return Job(row["method"], row["seed"], row["epochs"], changed)


def main_epochs(method: str, epochs: int) -> int:
    """Length of a method's run in the main comparison, where the others' is ``epochs``."""
    row = METHODS[method]
    return round(epochs * row.budget) if row.config else 0


def sweep_jobs(name: str, epochs: int, seed: int, num_train: int, negatives: int) -> list[Job]:
    """The models of one sweep, of PIRL and where it has one of the jigsaw classifier.

    The value that is PIRL's default anyway is the same model in every sweep.

    Args:
        name: of the sweep.
        epochs: of each model.
        seed: of each model.
        num_train: images; N is at most half of them.
        negatives: N where it is not swept.
    """
    values = {"pirl_jigsaw": SWEEP_VALUES[name]}
    if name == "negatives":
        values["pirl_jigsaw"] = tuple(sorted({min(n, num_train // 2) for n in SWEEP_VALUES[name]}))
    if name == "permutations":
        values["jigsaw"] = JIGSAW_PERMUTATIONS
    return [
        Job(method, seed, epochs, () if value == default else ((name, value),))
        for method in values
        for default in [unswept(name, method, num_train, negatives)]
        for value in values[method]
    ]


def unswept(name: str, method: str, num_train: int, negatives: int) -> float:
    """The value of a sweep's key that a method has in the other runs.

    Args:
        name: of the sweep.
        method: ``pirl_jigsaw`` or ``jigsaw``.
        num_train: images.
        negatives: N where it is not swept.
    """
    if name == "negatives":
        return min(negatives, num_train // 2)
    if name == "permutations":
        return NUM_ORDERS if method == "pirl_jigsaw" else 100
    return 0.5


def plan(
    methods: Sequence[str],
    sweeps: Sequence[str],
    seeds: int,
    sweep_seeds: int,
    epochs: int,
    num_train: int,
    negatives: int,
) -> list[Job]:
    """All models in the order in which they are made: seed by seed, the main comparison first.

    Args:
        methods: of the main comparison.
        sweeps: which of them.
        seeds: of the main comparison.
        sweep_seeds: of the sweeps.
        epochs: of the main comparison; a sweep's models take half of them.
        num_train: images.
        negatives: N where it is not swept.
    """
    jobs = [
        Job(method, seed, main_epochs(method, epochs))
        for seed in range(seeds)
        for method in METHODS
        if method in methods
    ]
    for seed in range(sweep_seeds):
        for name in sweeps:
            jobs += sweep_jobs(name, sweep_epochs(epochs), seed, num_train, negatives)
    return list(dict.fromkeys(jobs))


def sweep_epochs(epochs: int) -> int:
    """Length of a sweep's runs."""
    return max(1, epochs // 2)


def evaluated(epochs: int, step: int) -> list[int]:
    """Epochs after which a run is evaluated: each ``step``, of a longer run four, and the last.

    Of a sweep's run, half as long as the comparison's, only the last one is compared.
    """
    if epochs <= 2 * step:
        return [epochs]
    step = max(step, epochs // 4)
    return sorted({*range(step, epochs + 1, step), epochs})
