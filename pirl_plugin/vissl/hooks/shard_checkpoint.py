"""Save the shards of a sharded memory bank beside the host's checkpoint, and load them again."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from pirl_plugin.checkpoints.run_folder import shards_of_step
from pirl_plugin.checkpoints.saver import saver_of
from pirl_plugin.distributed import on_all_ranks, on_first_rank
from pirl_plugin.vissl.hooks.base import QuietHook

if TYPE_CHECKING:
    from vissl.trainer.train_task import SelfSupervisionTask


class ShardCheckpointHook(QuietHook):
    """The host saves the loss of rank 0 alone; this hook saves each rank's part of the bank.

    The shards of step S go to ``memory_bank/step_S`` of the checkpoint folder, whole before the
    host writes the checkpoint that belongs to them. Any number of ranks can load them. They are
    removed with their checkpoint.
    """

    def __init__(self) -> None:
        super().__init__()
        self._saved_step: int | None = None

    def on_start(self, task: SelfSupervisionTask) -> None:
        """Load the shards of the step that the host's checkpoint is of.

        Raises:
            FileNotFoundError: they are not there; on all ranks, where one does not find them.
        """
        loss = task.loss
        if loss.bank.persistent or not loss.bank.awaits_load:
            return
        folder = _folder(task)

        def check() -> None:
            if not folder.is_dir():
                raise FileNotFoundError(
                    f"the checkpoint is of step {loss.step}, and its memory bank is not in "
                    f"{folder}: bring the folder memory_bank along with the checkpoint, or start "
                    f"again in another config.CHECKPOINT.DIR"
                )

        on_all_ranks(check)
        loss.bank.load(folder)
        logging.info(f"Loaded the memory bank's shards from {folder}")

    def on_phase_end(self, task: SelfSupervisionTask) -> None:
        """Save where the host is about to save a phase."""
        self._save_if_due(task, "CHECKPOINT_FREQUENCY", task.train_phase_idx, "phase")

    def on_step(self, task: SelfSupervisionTask) -> None:
        """Save where the host is about to save in the middle of a phase."""
        if task.config["CHECKPOINT"]["CHECKPOINT_ITER_FREQUENCY"] > 0:
            self._save_if_due(task, "CHECKPOINT_ITER_FREQUENCY", task.iteration, "iteration")

    def save(self, task: SelfSupervisionTask) -> None:
        """Collective: write the shards of the step just done, unless the bank is replicated.

        Where two checkpoints are of one step, they share its shards.
        """
        if task.loss.bank.persistent:
            return
        saver = saver_of(task.checkpoint_folder)
        if saver is not None:
            on_first_rank(lambda: saver.folder.announce(_name(task)))
        if self._saved_step != task.loss.step:
            task.loss.bank.save(_folder(task))
        self._saved_step = task.loss.step

    def _save_if_due(
        self, task: SelfSupervisionTask, frequency: str, number: int, mode: str
    ) -> None:
        from vissl.utils.checkpoint import is_checkpoint_phase

        phase, phases = task.train_phase_idx, task.num_train_phases
        every = task.config["CHECKPOINT"][frequency]
        if task.train and is_checkpoint_phase(number, every, phase, phases, mode):
            self.save(task)


def _name(task: SelfSupervisionTask) -> str:
    return shards_of_step(task.loss.step)


def _folder(task: SelfSupervisionTask) -> Path:
    return Path(task.checkpoint_folder) / _name(task)
