"""The section ``HOOKS.PIRL_RUN``: what a run does about faults of processes and data."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

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
    """

    max_unreadable: float = 0.05
    changed_data: str = "refuse"
    timeout_minutes: float = 10

    def __post_init__(self) -> None:
        """See that the values can be used.

        Raises:
            ValueError: names key, value, what was expected and what to do.
        """
        if not 0 <= self.max_unreadable <= 1:
            raise ValueError(
                f"HOOKS.PIRL_RUN.max_unreadable = {self.max_unreadable}: expected a share from 0 "
                f"to 1; set 0.05, or 1 to go on whatever cannot be read"
            )
        if self.changed_data not in ON_CHANGED_DATA:
            raise ValueError(
                f"HOOKS.PIRL_RUN.changed_data = {self.changed_data!r}: expected one of "
                f"{', '.join(ON_CHANGED_DATA)}; set refuse"
            )
        if not self.timeout_minutes > 0:
            raise ValueError(
                f"HOOKS.PIRL_RUN.timeout_minutes = {self.timeout_minutes}: expected minutes above "
                f"0; set 10"
            )

    @classmethod
    def from_config(cls, config: AttrDict) -> RunSettings:
        """Read them from the host's whole configuration.

        Raises:
            ValueError: a key or a value is not one of these.
        """
        section = (config.get("HOOKS") or {}).get("PIRL_RUN") or {}
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(section) - set(known))
        if unknown:
            raise ValueError(
                f"HOOKS.PIRL_RUN.{unknown[0]} = {section[unknown[0]]!r}: expected one of the keys "
                f"{', '.join(known)}; remove it"
            )
        return cls(**{name: section[name] for name in known if name in section})
