"""What a claim is: a statement, and the differences that are above 0 where it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pirl_plugin.experiments.claims.claims_file import Metric
    from pirl_plugin.experiments.claims.differences import Measure

EACH = (
    "held: all intervals lie above 0; not held: one of k lies below 0 at the level 1 - 0.05 / k; "
    "difference, standard error and interval are those of the smallest mean lead"
)
"""How the verdict on a statement about several rivals is found, for people."""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, or of this project about itself.

    Attributes:
        id: its name in ``claims.json``.
        statement: what is claimed, and which difference is taken for it.
        source: where the paper says so, with its figures; or which comparison this is.
        measure: the difference of one seed, above 0 where the statement holds. Of a statement about
            several rivals at once, rival → the difference to it, each above 0 where it holds.
        unit: of the difference.
        metric: which accuracy the verdict is of.
        by_accuracy: whether other measures of accuracy have something to say about it beside.
        note: what a reader of the verdict must know.
    """

    id: str
    statement: str
    source: str
    measure: Measure | Mapping[str, Measure]
    unit: str = "points of top-1"
    metric: Metric = "linear_top1"
    by_accuracy: bool = True
    note: str = ""

    @property
    def measures(self) -> Mapping[str, Measure]:
        """Rival → the difference to it; of a single one, its name is empty."""
        return self.measure if isinstance(self.measure, Mapping) else {"": self.measure}
