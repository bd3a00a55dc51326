"""How far a comparison is, and how long the rest will take, from the models that are finished."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from pirl_plugin.experiments.claims.methods import METHODS
from pirl_plugin.experiments.claims.plan import evaluated

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pirl_plugin.experiments.claims.claims_file import ClaimRow
    from pirl_plugin.experiments.claims.plan import Job

_SECONDS_PER_IMAGE = 0.008  # of PIRL (jigsaw) on one core, until one has been measured
# Seconds of one point, until one has been measured: its start, and each training image.
_EVALUATION = (10.0, 0.014)


class Progress:
    """Prints a line when a model starts and when it has ended.

    Args:
        left: jobs to do.
        rows: of finished ones, also of earlier sessions.
        num_train: images of an epoch.
        side_by_side: jobs at a time.
        step: epochs between two evaluations.
    """

    def __init__(
        self,
        left: Sequence[Job],
        rows: Iterable[ClaimRow],
        num_train: int,
        side_by_side: int,
        step: int,
    ) -> None:
        self._left, self._rows = list(left), list(rows)
        self._num_train, self._side_by_side = num_train, side_by_side
        self._step, self._total, self._started = step, len(left), 0

    def announce(self, job: Job) -> None:
        """Say that a job begins."""
        self._started += 1
        print(
            f"\nModel {self._started} of {self._total}: {job.title}; {self.time_left()} left",
            flush=True,
        )

    def ended(self, job: Job, row: ClaimRow | None) -> None:
        """Say what a job has measured."""
        self._left.remove(job)
        if row is None:
            return
        self._rows.append(row)
        seconds = "seconds unknown" if row["seconds"] is None else f"{row['seconds']:.0f} s"
        print(
            f"{job.title}: linear {row['linear_top1']:.1f}, of {row['best_layer']} "
            f"{row['linear_best_top1']:.1f}, kNN {row['knn_top1']:.1f}, {seconds}; "
            f"{self.time_left()} left",
            flush=True,
        )

    def time_left(self) -> str:
        """Wall-clock time of what is left: ``about 3:20:00``."""
        seconds = sum(self._estimate(job) for job in self._left) / self._side_by_side
        return f"about {datetime.timedelta(seconds=round(seconds, -1))}"

    def _estimate(self, job: Job) -> float:
        images = job.epochs * self._num_train
        rates = {
            row["method"]: row["wall_seconds"] / row["images_seen"]
            for row in self._rows
            if row["images_seen"] and row["wall_seconds"]
        }
        scaled = [rate / METHODS[method].time for method, rate in rates.items()]
        reference = sum(scaled) / len(scaled) if scaled else _SECONDS_PER_IMAGE
        rate = rates.get(job.method, reference * METHODS[job.method].time)
        points = [row["evaluation_seconds"] / len(row["points"]) for row in self._rows]
        start, an_image = _EVALUATION
        guess = start + an_image * self._num_train
        evaluation = sum(points) / len(points) if points else guess
        return images * rate + evaluation * len(evaluated(job.epochs, self._step))
