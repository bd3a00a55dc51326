"""Look up measurements among the rows of ``claims.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pirl_plugin.experiments.claims.plan import Job, main_epochs, sweep_epochs, sweep_jobs, unswept

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pirl_plugin.experiments.claims.claims_file import ClaimRow, Invariance, Metric, Setting


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
            for row in rows
        }
        self.seeds = sorted({row["seed"] for row in rows})

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
        """Distances of a run of the main comparison, all runs of a method measured in one way.

        Rows without ``own_statistics`` are older, and took for "different images" those that follow
        each other in the folder. They count only where a method has no other.
        """
        row = self.main(method, seed)
        found = row.get("invariance") if row else None
        newer = any("own_statistics" in other.get("invariance", {}) for other in self.of(method))
        return found if found and ("own_statistics" in found or not newer) else None


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
