"""Look up measurements among the rows of ``claims.json``."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import TYPE_CHECKING, cast

from pirl_plugin.evaluation.tables.published import LAYERS
from pirl_plugin.experiments.claims.plan import (
    PAIRS,
    Job,
    main_epochs,
    sweep_epochs,
    sweep_jobs,
    unswept,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pirl_plugin.experiments.claims.claims_file import (
        ClaimRow,
        Invariance,
        Measured,
        Metric,
        Setting,
    )


class Rows:
    """The finished runs, and the lengths of the comparison they belong to.

    Args:
        rows: of ``claims.json``.
        setting: of ``claims.json``.
    """

    def __init__(self, rows: Iterable[ClaimRow], setting: Setting) -> None:
        self.epochs = setting["epochs"]
        self.num_train = setting["data"]["train_images"]
        self.negatives = setting["network"]["negatives"]
        self._found = {
            (row["method"], tuple(sorted(row["changed"].items())), row["epochs"], row["seed"]): row
            for row in _of_best_layers(rows)
        }
        self.seeds = sorted({seed for *_, seed in self._found})

    def main(self, method: str, seed: int) -> ClaimRow | None:
        """The run of the main comparison."""
        return self._found.get((method, (), main_epochs(method, self.epochs), seed))

    def of(self, method: str) -> list[ClaimRow]:
        """The runs of the main comparison, of each seed that there is."""
        return [row for seed in self.seeds if (row := self.main(method, seed))]

    def job(self, job: Job) -> ClaimRow | None:
        """The run of a job."""
        return self._found.get((job.method, job.changed, job.epochs, job.seed))

    def sweep(self, name: str, method: str, seed: int) -> dict[float, ClaimRow]:
        """Value → run, of a sweep's finished models of one method."""
        default = unswept(name, method, self.num_train, self.negatives)
        found = {}
        for job in self._sweep_jobs(name, method, seed):
            row = self.job(job)
            if row is not None:
                found[dict(job.changed).get(name, default)] = row
        return dict(sorted(found.items()))

    def num_swept(self, name: str, method: str) -> int:
        """How many values a sweep of one method has."""
        return len(self._sweep_jobs(name, method, 0))

    def swept_methods(self, name: str) -> list[str]:
        """The methods of a sweep."""
        jobs = sweep_jobs(name, self.epochs, 0, self.num_train, self.negatives)
        return list(dict.fromkeys(job.method for job in jobs))

    def sweeps(self, name: str, method: str) -> dict[int, dict[float, ClaimRow]]:
        """Seed → value → run, of the seeds that have a run of a sweep."""
        found = {seed: self.sweep(name, method, seed) for seed in self.seeds}
        return {seed: runs for seed, runs in found.items() if runs}

    def whole_sweeps(self, name: str, method: str) -> list[dict[float, ClaimRow]]:
        """Value → run, of each seed that has all values: means of those compare values alone."""
        count = self.num_swept(name, method)
        return [runs for runs in self.sweeps(name, method).values() if len(runs) == count]

    def _sweep_jobs(self, name: str, method: str, seed: int) -> list[Job]:
        epochs = sweep_epochs(self.epochs)
        jobs = sweep_jobs(name, epochs, seed, self.num_train, self.negatives)
        return [job for job in jobs if job.method == method]

    def invariance(self, method: str, seed: int) -> Invariance | None:
        """Distances of a run of the main comparison, all runs of a pair measured in one way.

        Rows without ``own_statistics`` are older, and took for "different images" those that follow
        each other in the folder. They count only where neither PIRL nor its classifier has others.
        """
        row = self.main(method, seed)
        found = row.get("invariance") if row else None
        pair = next((pair for pair in PAIRS if method in pair), (method,))
        others = [other for each in pair for other in self.of(each)]
        newer = any("own_statistics" in other.get("invariance", {}) for other in others)
        return found if found and ("own_statistics" in found or not newer) else None


def _of_best_layers(rows: Iterable[ClaimRow]) -> list[ClaimRow]:
    """The rows with one layer as the best of a model: the one of the best mean over its seeds.

    A maximum within each run would gain from noise, and the more so the more alike its layers are.
    """
    seeds: dict[tuple[str, str, int], list[ClaimRow]] = defaultdict(list)
    for row in rows:
        seeds[row["method"], str(sorted(row["changed"].items())), row["epochs"]].append(row)
    found = []
    for several in seeds.values():
        means = {x: fmean(row["linear_by_layer"][x] for row in several) for x in LAYERS}
        best = max(means, key=lambda layer: means[layer])
        for row in several:
            points = [{**point, **_of_layer(point, best)} for point in row["points"]]
            found.append(cast("ClaimRow", {**row, **_of_layer(row, best), "points": points}))
    return found


def _of_layer(measured: Measured, layer: str) -> dict[str, object]:
    return {"linear_best_top1": measured["linear_by_layer"][layer], "best_layer": layer}


def at_time(row: ClaimRow, seconds: float, metric: Metric, start: float) -> float:
    """A measurement after so many seconds of pre-training, between the points of its curve.

    Args:
        row: a run.
        seconds: of its pre-training; beyond its end it is what it ended with.
        metric: ``linear_top1`` or ``knn_top1``.
        start: the measurement of the untrained network.

    Raises:
        ValueError: the run's seconds are unknown.
    """
    before, value = 0.0, start
    for point in row["points"]:
        reached = point["seconds"]
        if reached is None:
            raise ValueError(f"{row['method']}, seed {row['seed']}: its seconds are unknown")
        if seconds <= reached > before:
            share = (seconds - before) / (reached - before)
            return value + share * (float(point[metric]) - value)
        before, value = reached, float(point[metric])
    return value
