"""Save the shards of a sharded memory bank beside the host's checkpoint, and load them again."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from torch import distributed

from pirl_plugin.hooks.base import QuietHook
from pirl_plugin.memory.collectives import rank, world_size

_KEPT = 2  # the newest, and the one before it: what the host's last whole checkpoint belongs to


class ShardCheckpointHook(QuietHook):
    """The host saves the loss of rank 0 alone; this hook saves each rank's part of the bank.

    The shards of step S go to ``memory_bank/step_S`` of the checkpoint folder, before the host
    writes the checkpoint that belongs to them. Any number of ranks can load them.
    """

    def on_start(self, task: Any) -> None:
        """Load the shards of the step that the host's checkpoint is of.

        Raises:
            FileNotFoundError: they are not there.
        """
        loss = task.loss
        if loss.bank.persistent or loss.bank.loaded or loss.step == 0:
            return
        folder = _folder(task) / f"step_{loss.step}"
        if not folder.is_dir():
            raise FileNotFoundError(
                f"the checkpoint is of step {loss.step}, and its memory bank is not in {folder}: "
                f"bring the folder memory_bank along with the checkpoint, or start anew in another "
                f"config.CHECKPOINT.DIR"
            )
        loss.bank.load(folder)
        logging.info(f"Loaded the memory bank's shards from {folder}")

    def on_phase_end(self, task: Any) -> None:
        """Save where the host is about to save a phase."""
        self._save_if_due(task, "CHECKPOINT_FREQUENCY", task.train_phase_idx, "phase")

    def on_step(self, task: Any) -> None:
        """Save where the host is about to save in the middle of a phase."""
        if task.config["CHECKPOINT"]["CHECKPOINT_ITER_FREQUENCY"] > 0:
            self._save_if_due(task, "CHECKPOINT_ITER_FREQUENCY", task.iteration, "iteration")

    def _save_if_due(self, task: Any, frequency: str, number: int, mode: str) -> None:
        from vissl.utils.checkpoint import is_checkpoint_phase

        loss = task.loss
        if loss.bank.persistent or not task.train:
            return
        phase, phases = task.train_phase_idx, task.num_train_phases
        every = task.config["CHECKPOINT"][frequency]
        last = phase == phases - 1 and mode == "phase"
        if not last and not is_checkpoint_phase(number, every, phase, phases, mode):
            return
        folder = _folder(task)
        loss.bank.save(folder / f"step_{loss.step}")
        if rank() == 0:
            steps = sorted(int(p.name.removeprefix("step_")) for p in folder.glob("step_*"))
            # Steps to come are those of an abandoned run, which this one has taken over from.
            kept = [step for step in steps if step <= loss.step][-_KEPT:]
            for step in set(steps) - set(kept):
                shutil.rmtree(folder / f"step_{step}")
        if world_size() > 1:
            distributed.barrier()


def _folder(task: Any) -> Path:
    return Path(task.checkpoint_folder) / "memory_bank"
