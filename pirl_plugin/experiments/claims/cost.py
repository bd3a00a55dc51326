"""The seconds of runs, by one timing of all methods where there was one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pirl_plugin.experiments.claims.claims_file import ClaimRow, Cost


def timed(rows: Iterable[ClaimRow], cost: Cost | None) -> list[ClaimRow]:
    """The rows with the seconds that their images take by the timing of all methods.

    Where there was none they are as they are: the seconds of each run on the machine it found. A
    method that was not timed then has no seconds.
    """
    if cost is None:
        return list(rows)
    return [_timed(row, cost["seconds_per_1000_images"].get(row["method"])) for row in rows]


def _timed(row: ClaimRow, per_1000: float | None) -> ClaimRow:
    def seconds(images: int) -> float | None:
        if not images:
            return 0.0
        return None if per_1000 is None else round(images * per_1000 / 1000, 1)

    points = [{**point, "seconds": seconds(point["images_seen"])} for point in row["points"]]
    timed_row = {**row, "seconds": seconds(row["images_seen"]), "points": points}
    return cast("ClaimRow", timed_row)
