"""The seconds of runs, by one timing of all methods where there was one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pirl_plugin.experiments.claims.methods import METHODS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pirl_plugin.experiments.claims.claims_file import ClaimRow, Cost, Setting


def timed(rows: Iterable[ClaimRow], cost: Cost | None) -> list[ClaimRow]:
    """The rows with the seconds that their images take by the timing of all methods.

    Where there was none they are as they are: the seconds of each run on the machine it found. A
    method that was not timed then has no seconds.
    """
    if cost is None:
        return list(rows)
    return [_timed(row, cost["seconds_per_1000_images"].get(row["method"])) for row in rows]


def refuse_other_machine(cost: Cost | None, methods: Iterable[str], setting: Setting) -> None:
    """Refuse to time some methods here where the others were timed elsewhere.

    Raises:
        SystemExit: methods that were timed on other hardware, or in another precision, are not
            among those that are to be timed.
    """
    if cost is None or _made_as(cost) == _made_as(setting):
        return
    left = [m for m in cost["seconds_per_1000_images"] if m not in methods]
    if left:
        raise SystemExit(
            f"pirl_plugin: --time --methods: {', '.join(left)} were timed on {_made_as(cost)}, and "
            f"this is {_made_as(setting)}: expected all methods in one timing; name these too, or "
            f"no --methods"
        )


def merged(before: Cost | None, new: Cost) -> Cost:
    """A timing with what an earlier one, of the same machine, has of other methods."""
    if before is None or _made_as(before) != _made_as(new):
        return new
    seconds = {**before["seconds_per_1000_images"], **new["seconds_per_1000_images"]}
    rounds = {**before["rounds"], **new["rounds"]}
    return {**new, "seconds_per_1000_images": seconds, "rounds": rounds}


def not_timed(rows: Iterable[ClaimRow], cost: Cost) -> list[str]:
    """Labels of the methods with runs that a timing lacks: they have no seconds."""
    trained = {row["method"] for row in rows if row["epochs"]}
    lacking = trained - cost["seconds_per_1000_images"].keys()
    return [about.label for method, about in METHODS.items() if method in lacking]


def _made_as(made: Cost | Setting) -> str:
    return f"{made['hardware']}, in {made.get('precision', 'float32')}"


def _timed(row: ClaimRow, per_1000: float | None) -> ClaimRow:
    def seconds(images: int) -> float | None:
        if not images:
            return 0.0
        return None if per_1000 is None else round(images * per_1000 / 1000, 1)

    points = [{**point, "seconds": seconds(point["images_seen"])} for point in row["points"]]
    timed_row = {**row, "seconds": seconds(row["images_seen"]), "points": points}
    return cast("ClaimRow", timed_row)
