"""Distances of images to their transformed versions (Fig. 4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pirl_plugin.evaluation import invariance_run
from pirl_plugin.experiments.claims.clock import checkpoints
from pirl_plugin.experiments.claims.plan import PAIRS, job_of
from pirl_plugin.utils.outputs import write_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pirl_plugin.evaluation.invariance_run import Comparison
    from pirl_plugin.experiments.claims.claims_file import ClaimRow, Invariance, Spread
    from pirl_plugin.experiments.claims.workspace import Workspace

IMAGES = 500


def lacks_invariance(row: ClaimRow) -> bool:
    """Whether a run should have distances, and has none, or those of before ``own_statistics``."""
    measured = any(row["method"] in pair for pair in PAIRS) and not row["changed"]
    return measured and "own_statistics" not in row.get("invariance", {})


def add_invariance(row: ClaimRow, checkpoint: Path, workspace: Workspace) -> str | None:
    """Measure a finished run; a row whose run cannot be measured stays as it is.

    Args:
        row: gets the key ``invariance``.
        checkpoint: the run's final one.
        workspace: of the comparison.

    Returns:
        What is to be said of a failure.
    """
    job = job_of(row)
    try:
        row["invariance"] = _measure(checkpoint, workspace, workspace.out / job.name / "invariance")
    except Exception as error:
        return f"{job.title}: no invariance: {first_line(error)}"
    finally:
        torch.cuda.empty_cache()
    return None


def add_missing_invariance(rows: Iterable[ClaimRow], workspace: Workspace) -> list[str]:
    """Measure the finished runs that lack it and whose checkpoints are here; name the others.

    Args:
        rows: of ``claims.json``.
        workspace: where the runs are.

    Returns:
        What is to be said of each failure.
    """
    failures, gone = [], []
    for row in filter(lacks_invariance, rows):
        job = job_of(row)
        checkpoint = checkpoints(workspace.out / job.name / "pretrain").get(row["epochs"])
        if checkpoint is None:
            gone.append(job.title)
        elif said := add_invariance(row, checkpoint, workspace):
            failures.append(said)
    if gone:
        print(
            f"Not measured, since their checkpoints are not here: the invariance of "
            f"{'; '.join(gone)} (--again METHOD makes them again)",
            flush=True,
        )
    return failures


def first_line(error: BaseException) -> str:
    """What an exception says, for a list of failures."""
    text = (str(error).splitlines() or [""])[0].removeprefix("pirl_plugin: ")
    is_sentence = isinstance(error, (SystemExit, OSError, ValueError))
    return text if is_sentence else f"{type(error).__name__}: {text}"


def _measure(checkpoint: Path, workspace: Workspace, out: Path) -> Invariance:
    """``mean``, ``std`` and the density; of different images beside them."""
    if not _is_of(out / "invariance.json", checkpoint):
        found = invariance_run.measure_invariance(
            [checkpoint],
            Path(str(workspace.data.val)),
            images=IMAGES,
            # A jigsaw classifier's run does not say which view of the image its patches are
            # compared with: that of PIRL.
            image_size=workspace.scale.image_size,
        )
        write_json(out / "invariance.json", found)
    results = json.loads((out / "invariance.json").read_text())
    (model,) = results["models"]
    return {
        "images": results["images"],
        "compared": model["representation"],
        **_spread(model["heads"]),
        "density": [round(value, 3) for value in model["heads"]["same"]["density"]],  # of [0, 2]
        "own_statistics": _spread(model["own_statistics"]),
    }


def _is_of(file: Path, checkpoint: Path) -> bool:
    """Whether a file of distances is of this checkpoint, and says all."""
    if not file.is_file():
        return False
    models = json.loads(file.read_text())["models"]
    found = [(model["checkpoint"], "own_statistics" in model) for model in models]
    return found == [(str(checkpoint.resolve()), True)]


def _spread(found: Comparison) -> Spread:
    same, different = found["same"], found["different"]
    return {
        "mean": round(same["mean"], 4),
        "std": round(same["std"], 4),
        "different_mean": round(different["mean"], 4),
        "different_std": round(different["std"], 4),
    }
