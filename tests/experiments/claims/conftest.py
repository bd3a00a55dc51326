"""Models that are not made."""

import pytest

from pirl_plugin.experiments.claims import report, workers
from tests.helpers.claims_rows import row

_SPREAD = {"mean": 0.5, "std": 0.1, "different_mean": 1.0, "different_std": 0.1}
INVARIANCE = {**_SPREAD, "own_statistics": _SPREAD, "density": [1.0], "images": 2, "compared": "f"}


@pytest.fixture
def made(monkeypatch):
    """Jobs that were made, in place of the host's runs; ``failing`` names methods that fail."""

    class Made(list):
        failing = ()

    jobs = Made()
    drawn = jobs.drawn = []

    def make(job, workspace):
        jobs.append(job)
        if job.method in jobs.failing:
            raise SystemExit(f"pirl_plugin: {job.title} failed with exit status 1; the end of …")
        more = {"invariance": INVARIANCE} if job.method == "pirl_jigsaw" else {}
        return row(job.method, job.seed, 40.0, job.epochs, changed=dict(job.changed), **more)

    monkeypatch.setattr(workers, "make", make)
    monkeypatch.setattr(report, "write_figures", lambda out, rows: drawn.append(out))
    return jobs
