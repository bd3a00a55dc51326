"""Distances of images to their transformed versions (Fig. 4), by ``pirl-plugin invariance``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pirl_plugin.evaluation.invariance_command import main as invariance
from pirl_plugin.experiments.claims.clock import checkpoints
from pirl_plugin.experiments.claims.plan import Job, job_of

if TYPE_CHECKING:
    from pathlib import Path

    from pirl_plugin.experiments.claims.claims_file import Invariance
    from pirl_plugin.experiments.claims.model import Settings
    from pirl_plugin.experiments.claims.record import Record

MEASURED = ("pirl_jigsaw", "jigsaw", "pirl_rotation", "rotation")
IMAGES = 500


def add_invariance(record: Record, settings: Settings) -> None:
    """Measure the models of the main comparison that have not been, where their checkpoints are.

    Args:
        record: rows get the key ``invariance``.
        settings: where the runs are.
    """
    for row in record.rows:
        job = job_of(row)
        if job.method not in MEASURED or job.changed or "invariance" in row:
            continue
        checkpoint = checkpoints(settings.out / job.name / "pretrain").get(job.epochs)
        if checkpoint is not None:
            row["invariance"] = _measure(checkpoint, job, settings)


def _measure(checkpoint: Path, job: Job, settings: Settings) -> Invariance:
    """``mean``, ``std`` and the density of the distances; of different images beside them."""
    out = settings.out / job.name / "invariance"
    if not (out / "invariance.json").is_file():
        invariance(
            [
                "--checkpoint",
                str(checkpoint),
                "--data",
                str(settings.data.val),
                "--out",
                str(out),
                "--images",
                str(IMAGES),
                "--size",
                str(settings.scale.image_size),
            ]
        )
    results = json.loads((out / "invariance.json").read_text())
    (model,) = results["models"]
    same, different = model["heads"]["same"], model["heads"]["different"]
    return {
        "images": results["images"],
        "compared": model["representation"],
        "mean": round(same["mean"], 4),
        "std": round(same["std"], 4),
        "different_mean": round(different["mean"], 4),
        "different_std": round(different["std"], 4),
        "density": [round(value, 3) for value in same["density"]],  # over equal parts of [0, 2]
    }
