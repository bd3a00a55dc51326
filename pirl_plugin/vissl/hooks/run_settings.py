"""The section ``HOOKS.PIRL_RUN``: what a run does about faults of processes and data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pirl_plugin.vissl.sections import read_section

if TYPE_CHECKING:
    from vissl.config import AttrDict

ON_CHANGED_DATA = ("refuse", "match", "keep")


@dataclass(frozen=True)
class RunSettings:
    """Values of ``HOOKS.PIRL_RUN``, all optional.

    Attributes:
        max_unreadable: share of the last 10,000 images (or of the data set, if it is smaller) that
            may be unreadable before the run stops on all ranks.
        changed_data: what to do where the images are not those of the checkpoint, by their paths
            below their folder: ``refuse``; ``match`` rows of the memory bank by path, with new rows
            for new images; or ``keep`` the rows in their order, for images that were only renamed.
        timeout_minutes: how long a rank waits for another one, in a collective operation or at
            the start.

    Raises:
        ValueError: a value is none of these.
    """

    max_unreadable: float = 0.05
    changed_data: str = "refuse"
    timeout_minutes: float = 10

    def __post_init__(self) -> None:
        key = "config.HOOKS.PIRL_RUN"
        if not 0 <= self.max_unreadable <= 1:
            raise ValueError(
                f"{key}.max_unreadable = {self.max_unreadable:g}: expected a share from 0 to 1; "
                f"set 0.05, or 1 to train whatever cannot be read"
            )
        if self.changed_data not in ON_CHANGED_DATA:
            raise ValueError(
                f"{key}.changed_data = {self.changed_data}: expected one of "
                f"{', '.join(ON_CHANGED_DATA)}; set refuse"
            )
        if not 0 < self.timeout_minutes < 1e6:
            raise ValueError(
                f"{key}.timeout_minutes = {self.timeout_minutes:g}: expected minutes above 0"
            )

    @classmethod
    def from_config(cls, config: AttrDict) -> RunSettings:
        """Read them from the host's configuration.

        Raises:
            ValueError: a key or a value is not one of these.
        """
        return read_section(cls, config, "HOOKS.PIRL_RUN")
