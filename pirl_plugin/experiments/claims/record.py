"""``claims.json``: what was measured, and how; the one thing a comparison resumes from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from pirl_plugin.experiments.claims.methods import METHODS
from pirl_plugin.experiments.claims.plan import job_of
from pirl_plugin.utils.outputs import write_text

if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from pathlib import Path

    from pirl_plugin.experiments.claims.claims_file import (
        ClaimRow,
        ClaimsFile,
        Cost,
        Setting,
        Verdict,
    )
    from pirl_plugin.experiments.claims.plan import Job

# What must be equal for two files' runs to be compared; the rest of a setting is for people.
_FIXED: tuple[Literal["scale", "recipe", "network", "data", "epochs", "evaluated_every"], ...] = (
    "scale",
    "recipe",
    "network",
    "data",
    "epochs",
    "evaluated_every",
)


class Record:
    """The finished runs of a comparison, in ``OUT/claims.json``.

    Args:
        file: where it is, or will be.
        setting: of the runs that are to be added, or that are there.

    Raises:
        SystemExit: the file holds runs of another setting.
    """

    def __init__(self, file: Path, setting: Setting) -> None:
        self.file, self.setting = file, setting
        self.rows: list[ClaimRow] = []
        self.cost: Cost | None = None
        self._claims: Sequence[Verdict] = []
        self.take(file)

    def take(self, file: Path) -> None:
        """Add the runs of another file, such as a committed one, and the timing, if not here.

        Of a run that is here too, its invariance is taken where it was measured there alone.

        Raises:
            SystemExit: they were made with another setting, or it is another kind of file.
        """
        if not file.is_file():
            return
        content = read_claims(file)
        self._claims = self._claims or content.get("claims", [])
        for key in _FIXED:
            theirs, ours = _fixed(content["setting"], key), _fixed(self.setting, key)
            if _comparable(theirs, ours) != _comparable(ours, theirs):
                where, there, here = _first_difference(f"setting.{key}", theirs, ours)
                raise SystemExit(
                    f"pirl_plugin: {file}: {where} = {there}: expected {here}, which this "
                    f"command asks for; give the options it was made with, or another --out"
                )
        self.cost = self.cost or content.get("cost")
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
        cost = {} if self.cost is None else {"cost": self.cost}
        content = {"setting": self.setting, **cost, "runs": rows, "claims": self._claims}
        write_text(self.file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def read_claims(file: Path) -> ClaimsFile:
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


def _fixed(setting: Setting, key: str) -> object:
    """Its value in a setting; one recipe made all runs of files that name none."""
    return setting.get(key, "paper" if key == "recipe" else None)


def _first_difference(key: str, theirs: object, ours: object) -> tuple[str, object, object]:
    """The key, and both values, of the first entry in which two settings differ."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        there, here = _comparable(theirs, ours), _comparable(ours, theirs)
        assert isinstance(there, dict)
        assert isinstance(here, dict)
        for name in here:
            if there.get(name) != here[name]:
                return f"{key}.{name}", there.get(name), here[name]
    return key, theirs, ours


def _comparable(value: object, other: object) -> object:
    """A setting without what may differ: the name of the images' folder, and what one file lacks.

    Files of earlier versions do not say how many bytes their images have.
    """
    if not isinstance(value, dict) or not isinstance(other, dict):
        return value
    aside = {"name"} | ({"train_bytes"} - (value.keys() & other.keys()))
    return {k: v for k, v in value.items() if k not in aside}
