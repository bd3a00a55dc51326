"""Distances of images to their transformed versions (Fig. 4), by ``pirl-plugin invariance``."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from pirl_plugin.evaluation.invariance_command import main as invariance
from pirl_plugin.experiments.claims.clock import checkpoints
from pirl_plugin.experiments.claims.plan import job_of
from pirl_plugin.experiments.claims.rows import Rows

if TYPE_CHECKING:
    from pathlib import Path

    from pirl_plugin.evaluation.invariance_run import Comparison
    from pirl_plugin.experiments.claims.claims_file import ClaimRow, Invariance, Spread
    from pirl_plugin.experiments.claims.record import Record
    from pirl_plugin.experiments.claims.settings import Settings

# PIRL and the classifier of the same transformation. They are measured together: the classifier's
# run alone does not say which view of the image its transformed versions are compared with.
PAIRS = (("pirl_jigsaw", "jigsaw"), ("pirl_rotation", "rotation"))
IMAGES = 500


def add_invariance(record: Record, settings: Settings) -> None:
    """Measure the pairs of the main comparison that have not been, where their checkpoints are.

    So are those that were measured before ``own_statistics`` was.

    A pair that cannot be measured is named on stderr, and its rows stay as they are.

    Args:
        record: rows get the key ``invariance``.
        settings: where the runs are.
    """
    rows = Rows(record.rows, record.setting)
    for seed in rows.seeds:
        for pair in PAIRS:
            both = [row for method in pair if (row := rows.main(method, seed))]
            if len(both) < 2 or all("own_statistics" in row.get("invariance", {}) for row in both):
                continue
            files = [file for row in both if (file := _checkpoint(row, settings))]
            if len(files) < 2:
                continue
            try:
                measured = _measure(files, settings, f"{pair[0]}_seed{seed}")
            except SystemExit as error:
                print(f"{error}: no invariance of {pair[0]}, seed {seed}", file=sys.stderr)
                continue
            for row, found in zip(both, measured, strict=True):
                row["invariance"] = found


def _checkpoint(row: ClaimRow, settings: Settings) -> Path | None:
    """The final one of a run, where its folder is here."""
    return checkpoints(settings.out / job_of(row).name / "pretrain").get(row["epochs"])


def _measure(files: list[Path], settings: Settings, name: str) -> list[Invariance]:
    """Of each model ``mean``, ``std`` and the density; of different images beside them."""
    out = settings.out / "invariance" / name
    if not _is_of(out / "invariance.json", files):
        where = ["--data", str(settings.data.val), "--out", str(out), "--images", str(IMAGES)]
        invariance(["--checkpoint", *map(str, files), *where])
    results = json.loads((out / "invariance.json").read_text())
    found: list[Invariance] = []
    for model in results["models"]:
        density = model["heads"]["same"]["density"]
        found.append(
            {
                "images": results["images"],
                "compared": model["representation"],
                **_spread(model["heads"]),
                "density": [round(value, 3) for value in density],  # parts of [0, 2]
                "own_statistics": _spread(model["own_statistics"]),
            }
        )
    return found


def _is_of(file: Path, checkpoints: list[Path]) -> bool:
    """Whether a file of ``pirl-plugin invariance`` is of these checkpoints, and says all."""
    if not file.is_file():
        return False
    models = json.loads(file.read_text())["models"]
    return [(model["checkpoint"], "own_statistics" in model) for model in models] == [
        (str(checkpoint.resolve()), True) for checkpoint in checkpoints
    ]


def _spread(found: Comparison) -> Spread:
    same, different = found["same"], found["different"]
    return {
        "mean": round(same["mean"], 4),
        "std": round(same["std"], 4),
        "different_mean": round(different["mean"], 4),
        "different_std": round(different["std"], 4),
    }
