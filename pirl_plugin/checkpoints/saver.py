"""How a run of this plugin saves: finite state only, in the ledger, with what it resumes by."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from pirl_plugin.checkpoints.host_checkpoint import PLUGIN_SECTION
from pirl_plugin.checkpoints.resume import bank_of
from pirl_plugin.checkpoints.write import check_finite

if TYPE_CHECKING:
    from collections.abc import Callable

    from pirl_plugin.checkpoints.host_checkpoint import HostCheckpoint
    from pirl_plugin.checkpoints.run_folder import RunFolder

_SAVERS: dict[str, Saver] = {}


class Saver:
    """Around each checkpoint that the host writes in a run of this plugin, on rank 0.

    Args:
        folder: where the run saves.
        section: what this plugin adds to a checkpoint; is given whether that is in the middle of
            an epoch.

    Attributes:
        paused: whether the state is between two steps' states, in a forward pass say; the host
            saves there when it finds NaN, and no run could go on from that.
        saved_at: when the run last saved, or began, on the clock of ``time.monotonic``.
    """

    def __init__(self, folder: RunFolder, section: Callable[[bool], dict[str, object]]) -> None:
        self.folder = folder
        self.section = section
        self.paused = False
        self.saved_at = time.monotonic()

    def prepare(self, content: HostCheckpoint, name: str) -> bool:
        """Complete what the host is about to save; returns False where it must not be saved.

        Raises:
            NonFiniteStateError: it holds NaN or infinities.
        """
        if self.paused:
            logging.root.warning(f"{name} was not saved: the model's output is not finite")
            return False
        state = content["classy_state_dict"]
        for part in (state["base_model"], state["optimizer"], content["loss"]):
            check_finite(part, str(self.folder.folder / name))
        inside = "model_iteration" in name
        content[PLUGIN_SECTION] = self.section(inside)
        if inside:
            content["iteration_num"] -= 1  # counted once more where the epoch begins again
        self.folder.announce(name)
        return True

    def take_up(self, content: HostCheckpoint, name: str) -> None:
        """Go on from a checkpoint: complete what a kill kept from the ledger, or left behind."""
        if name in self.folder.writing:
            self.record(content, name)
        self.folder.remove_orphans()

    def record(self, content: HostCheckpoint, name: str) -> None:
        """Enter what was saved in the ledger, and remove what need not stay."""
        self.saved_at = time.monotonic()
        bank = bank_of(content)
        inside = "model_iteration" in name
        self.folder.record(
            name,
            iteration=int(content["iteration"]),
            phase=None if inside else int(content["train_phase_idx"]),
            final="model_final" in name,
            folders=(bank,) if bank else (),
        )


def set_saver(folder: str, saver: Saver) -> None:
    """Let ``saver`` take part in what the host saves to ``folder`` from now on."""
    _SAVERS[os.path.realpath(folder)] = saver


def saver_of(folder: str) -> Saver | None:
    """The one set for ``folder``; None for approaches of VISSL."""
    return _SAVERS.get(os.path.realpath(folder))
