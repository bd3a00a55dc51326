"""Save a run on time or on a signal, add data to the host's checkpoints, and resume from them."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from torch import distributed

from pirl_plugin.checkpoints.training_run import (
    SECTION,
    describe_difference,
    images_digest,
    run_record,
    write_run_config,
)
from pirl_plugin.distributed import on_all_ranks, rank, world_size
from pirl_plugin.failures import Refused
from pirl_plugin.files import remove_unfinished
from pirl_plugin.vissl.hooks import QuietHook
from pirl_plugin.vissl.hooks.faults import SAVE, ExchangeHook
from pirl_plugin.vissl.resume import signals
from pirl_plugin.vissl.resume.folder import Keep, RunFolder, shards_of_step

if TYPE_CHECKING:
    from torch.amp import GradScaler
    from vissl.trainer.train_task import SelfSupervisionTask

_SCALER = "grad_scaler"  # in the section: the state of the host's GradScaler
HOOKS: dict[str, CheckpointHook] = {}
"""Folder of a run → its hook, for the patch of the host's ``save_checkpoint``."""


class CheckpointHook(QuietHook):
    """Saves on time and on signals, and adds missing data to the host's checkpoints.

    The host saves at the end of epochs, and every ``CHECKPOINT_ITER_FREQUENCY`` steps. It saves
    only the loss of rank 0. The shards of a sharded bank go to ``memory_bank/step_STEP`` before
    the checkpoint, which holds their checksums. All keys of the section are optional::

        CHECKPOINT:
          PIRL: {KEEP_LAST: 2, KEEP_EVERY: 0, EVERY_MINUTES: 30}
    """

    def __init__(self, keep: Keep) -> None:
        super().__init__()
        self.keep = keep
        self._saved_at = time.monotonic()
        self._record: dict[str, Any] = {}
        self._shards: tuple[int, dict[str, str]] | None = None  # step, file to checksum
        self._epoch_start = 0  # task.num_updates at the epoch's start; it counts images

    def on_start(self, task: SelfSupervisionTask) -> None:
        """Compare the images with the checkpoint's, load shards, and listen for signals.

        Raises:
            ValueError: the list of images differs; all ranks raise it.
        """
        self._task, folder = task, Path(task.checkpoint_folder)
        before: dict[str, Any] = (task.checkpoint or {}).get(SECTION) or {}

        def begin() -> None:
            if rank() != 0:
                return
            images, resumed = _images(task), task.checkpoint_path
            known = {k: v for k, v in (before.get("images") or {}).items() if k in images}
            if other := describe_difference(known, {k: images[k] for k in known}, resumed):
                raise Refused(other)
            self._record = {**run_record(task.config), "images": images}
            remove_unfinished(folder)
            self._folder = RunFolder(
                folder, self.keep, Path(resumed).resolve() if resumed else None
            )
            write_run_config(task.config, folder)
            HOOKS[os.path.realpath(folder)] = self

        on_all_ranks(begin)
        bank = getattr(task.loss, "bank", None)
        if bank is not None and not bank.replicated and bank.awaits_load:
            bank.load(folder / shards_of_step(task.loss.step), before.get("shards"))
            logging.info(f"Loaded the memory bank's shards of step {task.loss.step}")
        if before.get(_SCALER) and (scaler := scaler_of(task)) is not None:
            scaler.load_state_dict(before[_SCALER])
        (self._exchange,) = (hook for hook in task.hooks if isinstance(hook, ExchangeHook))
        self._exchange.request = self._request
        signals.poll()

    def on_phase_start(self, task: SelfSupervisionTask) -> None:
        """Set the learning rate of the epoch's start, for a rate that changes once an epoch."""
        if not task.train:
            return
        done = samples_done(task)
        self._epoch_start = task.num_updates - done
        if done:
            task.num_updates = self._epoch_start
            task.optimizer.on_epoch(task.where)
            task.num_updates += done

    def on_step(self, task: SelfSupervisionTask) -> None:
        """Save if it is time or a signal arrived, on all ranks after the same step.

        A test saves nothing: a signal ends it, and a resumed run repeats it.

        Raises:
            SystemExit: 128 plus the signal's number, after the checkpoint is written.
        """
        every = task.config["CHECKPOINT"]["CHECKPOINT_ITER_FREQUENCY"]
        host_saves = bool(task.train and every > 0 and task.iteration % every == 0)
        if host_saves:
            self._save_shards(task)
        agreed = self._exchange.agreed
        if task.train and (agreed > SAVE or (agreed and not host_saves)):
            self._save(task)
        if agreed > SAVE:
            done = f"after step {task.iteration}, which is saved" if task.train else "in a test"
            _stop(agreed, f"{done}; the same command resumes from {task.checkpoint_folder}")

    def on_phase_end(self, task: SelfSupervisionTask) -> None:
        """Save shards if the host will save at the end of this epoch."""
        every = task.config["CHECKPOINT"]["CHECKPOINT_FREQUENCY"]
        last = task.train_phase_idx == task.num_train_phases - 1
        if task.train and (last or task.train_phase_idx % every == 0):
            self._save_shards(task)

    def on_end(self, task: SelfSupervisionTask) -> None:
        """From now on, let signals end the process at once: no step reads them any more."""
        signals.poll(False)

    def complete(self, content: dict[str, Any], name: str) -> None:
        """Add this plugin's data to a checkpoint before the host saves it."""
        inside = "model_iteration" in name
        done = self._task.num_updates - self._epoch_start if inside else 0
        content[SECTION] = {**self._record, "samples_done": done}
        if self._shards is not None:
            content[SECTION]["shards"] = self._shards[1]
        if (scaler := scaler_of(self._task)) is not None:
            content[SECTION][_SCALER] = scaler.state_dict()  # the host does not save it
        if inside:
            content["iteration_num"] -= 1  # the host adds 1 when the epoch resumes

    def record(self, content: dict[str, Any], name: str) -> None:
        """Remove checkpoints that are not kept, after ``name`` was written."""
        self._saved_at = time.monotonic()
        self._folder.record(content, name)

    def _request(self) -> int:
        minutes = self.keep.EVERY_MINUTES if self._task.train and rank() == 0 else 0
        due = minutes and time.monotonic() - self._saved_at >= 60 * minutes
        return signals.requested() or (SAVE if due else 0)

    def _save(self, task: SelfSupervisionTask) -> None:
        self._save_shards(task)
        # The method of the host's hook: _checkpoint_model in the wheel, checkpoint_model in main.
        from vissl.hooks.log_hooks import LogLossMetricsCheckpointHook

        for hook in task.hooks:
            if isinstance(hook, LogLossMetricsCheckpointHook):
                when = {"mode_frequency": 1, "mode_num": task.iteration, "mode": "iteration"}
                if hasattr(hook, "checkpoint_model"):
                    hook.checkpoint_model(task, world_size=hook.world_size, **when)
                else:
                    hook._checkpoint_model(task, **when)

    def _save_shards(self, task: SelfSupervisionTask) -> None:
        """Collective: write the shards of the last step, unless the bank is replicated."""
        bank, step = getattr(task.loss, "bank", None), getattr(task.loss, "step", 0)
        if bank is None or bank.replicated or (self._shards and self._shards[0] == step):
            return
        folder = Path(task.checkpoint_folder) / shards_of_step(step)
        self._shards = step, bank.save(folder)


def samples_done(task: SelfSupervisionTask) -> int:
    """Return how many images of the current epoch all ranks had processed before the stop.

    It is 0, except in the first epoch after a resume. It is at most the size of this run's epoch:
    the stopped run may have padded a larger last batch.
    """
    checkpoint = task.checkpoint
    if checkpoint is None or task.train_phase_idx not in (
        checkpoint["train_phase_idx"],  # while the checkpoint is loaded
        checkpoint["train_phase_idx"] + 1,  # at the start of the epoch
    ):
        return 0
    epoch = len(task.dataloaders["train"]) * int(task.datasets["train"].get_global_batchsize())
    return min(int((checkpoint.get(SECTION) or {}).get("samples_done", 0)), epoch)


def scaler_of(task: SelfSupervisionTask) -> GradScaler | None:
    """Return the scaler of the loss for the host's float16; None without one."""
    scaler = task.amp_grad_scaler
    return scaler if scaler is not None and scaler.is_enabled() else None


def _images(task: SelfSupervisionTask) -> dict[str, str]:
    """Return the digest of the images of each split with one of our data sources."""
    from pirl_plugin.vissl.adapters.data import PIRLDiskDataset

    found = {}
    for split, data in task.datasets.items():
        for source in getattr(data, "data_objs", [])[:1]:
            if isinstance(source, PIRLDiskDataset):
                folder = source.path if os.path.isdir(source.path) else os.path.dirname(source.path)
                paths = map(source.source.path_of, range(len(source)))
                found[f"DATA.{split.upper()}.DATA_PATHS"] = images_digest(paths, folder)
    return found


def _stop(number: int, done: str) -> NoReturn:
    if world_size() > 1:
        distributed.barrier()  # no rank ends while rank 0 writes
    if rank() == 0:
        logging.warning(f"pirl_plugin: stopped by {signal.Signals(number).name} {done}")
    raise SystemExit(128 + number)
