"""What all models of a comparison have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pirl_plugin.experiments.claims.scales import Scale
    from pirl_plugin.experiments.data import Data


@dataclass(frozen=True)
class Workspace:
    """How, of what and where the models are made.

    Attributes:
        scale: network, images and batch.
        data: the images.
        out: folder of the runs.
        step: epochs between two evaluations.
        threads: of a run.
    """

    scale: Scale
    data: Data
    out: Path
    step: int
    threads: int
