"""``claims.json``: what was measured, and how; the one thing a comparison resumes from."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Literal

from pirl_plugin.data.sources.paths import find_images
from pirl_plugin.experiments.claims.methods import METHODS
from pirl_plugin.experiments.claims.plan import job_of, sweep_epochs
from pirl_plugin.experiments.claims.provenance import hardware, precision, versions
from pirl_plugin.experiments.claims.scales import SCALES, autocast
from pirl_plugin.utils.outputs import write_text

if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from pathlib import Path

    from pirl_plugin.experiments.claims.claims_file import (
        ClaimRow,
        ClaimsFile,
        DataFacts,
        Setting,
        Verdict,
    )
    from pirl_plugin.experiments.claims.plan import Job
    from pirl_plugin.experiments.quickstart_data import Data

# What must be equal for two files' runs to be compared; the rest of a setting is for people.
_FIXED: tuple[Literal["scale", "network", "data", "epochs", "evaluated_every"], ...] = (
    "scale",
    "network",
    "data",
    "epochs",
    "evaluated_every",
)
# What a command that makes runs says of itself.
_OF_THE_COMMAND: tuple[Literal["seconds", "hardware", "precision", "versions", "command"], ...] = (
    "seconds",
    "hardware",
    "precision",
    "versions",
    "command",
)


def new_setting(scale: str, data: Data, epochs: int, step: int, threads: int) -> Setting:
    """What all runs of a comparison were made with.

    Args:
        scale: name of it.
        data: the images.
        epochs: of the main comparison.
        step: epochs between two evaluations.
        threads: of a run.
    """
    size = SCALES[scale]
    cpu = size.cpu_time
    return {
        "scale": scale,
        "about": size.about,
        "network": {
            "model": size.model,
            "image_size": size.image_size,
            "patch_size": size.patch_size,
            "patches_crop_size": size.patches_crop_size,
            "batch": size.batch,
            "learning_rate": size.rate,
            "negatives": size.negatives,
        },
        "data": _fingerprint(data),
        "images_seen": epochs * data.num_train,
        "epochs": epochs,
        "evaluated_every": step,
        "sweep_epochs": sweep_epochs(epochs),
        "methods": {name: method.label for name, method in METHODS.items()},
        "seconds": "pre-training only: "
        + (
            f"CPU seconds, user and system, of the run's processes with {threads} thread(s); other "
            "load on the machine changes wall_seconds several times over, and these, by way of "
            "shared caches and cores, by up to a half"
            if cpu
            else "wall-clock seconds of the run's process, start and checkpoints included"
        ),
        "linear_top1": "percent; the host's linear benchmark (config=benchmark/pirl/quick_linear "
        f"+config/pirl/linear={size.model}): of linear_by_layer the pooled res5, res5avg where it "
        "is measured; linear_best_top1 is the best layer's, which the paper reports",
        "knn_top1": f"percent; k = 20, pooled res5 features at {size.image_size} px",
        "hardware": hardware(threads, on_gpu=not cpu),
        "precision": precision(autocast(size)),
        "versions": versions(),
    }


def _fingerprint(data: Data) -> DataFacts:
    """Counts, and a digest of the names of all images."""
    digest = hashlib.sha256()
    counts = {}
    for name, split in (("train", data.train), ("val", data.val)):
        paths = list(find_images(str(split)))
        counts[name] = len(paths)
        digest.update("\n".join([name, *paths]).encode())
    return {
        "name": data.train.parent.name,
        "classes": data.num_classes,
        "train_images": counts["train"],
        "val_images": counts["val"],
        "digest": digest.hexdigest()[:16],
    }


class Record:
    """The finished runs of a comparison, in ``OUT/claims.json``.

    Args:
        file: where it is, or will be.
        setting: of the runs that are to be added.
        adds: whether runs are to be added. Otherwise the setting keeps what the file, or the
            first that is taken, says of the command and the machine that made its runs.

    Raises:
        SystemExit: the file holds runs of another setting.
    """

    def __init__(self, file: Path, setting: Setting, adds: bool = True) -> None:
        self.file, self.setting = file, setting
        self.rows: list[ClaimRow] = []
        self._claims: Sequence[Verdict] = []
        self._described = adds
        self.take(file)

    def take(self, file: Path) -> None:
        """Add the runs of another file, such as a committed one, that are not here.

        Of a run that is here too, its invariance is taken where it was measured there alone.

        Raises:
            SystemExit: they were made with another setting, or it is another kind of file.
        """
        if not file.is_file():
            return
        content = _read(file)
        self._claims = self._claims or content.get("claims", [])
        for key in _FIXED:
            theirs, ours = content["setting"].get(key), self.setting[key]
            if _comparable(theirs) != _comparable(ours):
                raise SystemExit(
                    f"pirl_plugin: {file}: setting.{key} = {theirs}: expected {ours}, which this "
                    f"command asks for; give the options it was made with, or another --out"
                )
        if not self._described:
            self._described = True
            for name in _OF_THE_COMMAND:
                if name in content["setting"]:
                    self.setting[name] = content["setting"][name]
        ours_by_job = {job_of(row): row for row in self.rows}
        for row in content["runs"]:
            mine = ours_by_job.get(job_of(row))
            if mine is None:
                self.rows.append(row)
            elif {"invariance": row.get("invariance"), **mine} == row:
                mine.update(row)

    def add(self, row: ClaimRow) -> None:
        """Add or replace the row of one job."""
        job = job_of(row)
        self.rows = [other for other in self.rows if job_of(other) != job] + [row]

    def drop(self, jobs: Container[Job]) -> list[Job]:
        """Forget the runs of some jobs; those that there were."""
        dropped = [job for row in self.rows if (job := job_of(row)) in jobs]
        self.rows = [row for row in self.rows if job_of(row) not in dropped]
        return dropped

    def write(self, claims: Sequence[Verdict] | None = None) -> None:
        """Write the file; a kill leaves the old one or the new one.

        Args:
            claims: verdicts on the rows; those that were written last where None.
        """
        self._claims = self._claims if claims is None else claims
        order = list(METHODS)
        rows = sorted(
            self.rows,
            key=lambda row: (
                bool(row["changed"]),
                row["seed"],
                order.index(row["method"]),
                json.dumps(row["changed"]),
                row["epochs"],
            ),
        )
        content = {"setting": self.setting, "runs": rows, "claims": self._claims}
        write_text(self.file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _read(file: Path) -> ClaimsFile:
    """What a ``claims.json`` holds.

    Raises:
        SystemExit: it is something else.
    """
    try:
        content: ClaimsFile = json.loads(file.read_text())
        known = isinstance(content["setting"], dict) and isinstance(content["runs"], list)
    except (ValueError, TypeError, KeyError):
        known = False
    if not known:
        raise SystemExit(
            f"pirl_plugin: {file}: expected a claims.json, as this command writes it; name another"
        )
    return content


def _comparable(value: object) -> object:
    """A setting without what may differ: the name of the folder of the images."""
    return {k: v for k, v in value.items() if k != "name"} if isinstance(value, dict) else value
