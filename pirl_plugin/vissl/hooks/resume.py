"""Where in its epoch the checkpoint was saved that a run goes on from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pirl_plugin.checkpoints.host_checkpoint import PLUGIN_SECTION

if TYPE_CHECKING:
    from vissl.trainer.train_task import SelfSupervisionTask


def samples_done(task: SelfSupervisionTask) -> int:
    """Images of the epoch that begins now which all ranks together had done before the stop.

    Zero in every epoch but the first after a resume. At most an epoch's: what wrote the checkpoint
    may have filled up a last batch that was larger than this run's.
    """
    checkpoint = task.checkpoint
    if checkpoint is None or task.train_phase_idx not in (
        checkpoint["train_phase_idx"],  # while the checkpoint is loaded
        checkpoint["train_phase_idx"] + 1,  # when the epoch begins
    ):
        return 0
    batches = len(task.dataloaders["train"])
    batch = int(task.datasets["train"].get_global_batchsize())
    if PLUGIN_SECTION in checkpoint:
        return min(int(checkpoint[PLUGIN_SECTION]["samples_done"]), batches * batch)
    if "model_iteration" not in Path(task.checkpoint_path).resolve().name:
        return 0
    # As the host counts, who wrote it.
    done = checkpoint["iteration"] - (checkpoint["train_phase_idx"] + 1) * batches
    return min(max(done, 0), batches) * batch
