"""When a run saves, and how it goes on in the middle of an epoch."""

from __future__ import annotations

import logging
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from torch import distributed

from pirl_plugin.checkpoints.host_checkpoint import PLUGIN_SECTION
from pirl_plugin.checkpoints.initial_weights import RECORD, initial_weights
from pirl_plugin.checkpoints.run_folder import Keep, RunFolder
from pirl_plugin.checkpoints.saver import Saver, saver_of, set_saver
from pirl_plugin.checkpoints.settings import resume_settings
from pirl_plugin.distributed import rank, world_size
from pirl_plugin.files import remove_unfinished
from pirl_plugin.vissl import signals
from pirl_plugin.vissl.hooks.agreement import Agreement
from pirl_plugin.vissl.hooks.base import QuietHook
from pirl_plugin.vissl.hooks.resume import samples_done
from pirl_plugin.vissl.hooks.shard_checkpoint import ShardCheckpointHook
from pirl_plugin.vissl.signals import STOPPING

if TYPE_CHECKING:
    from torch.amp import GradScaler
    from vissl.config import AttrDict
    from vissl.trainer.train_task import SelfSupervisionTask

# What rank 0 wishes when it is time; more means save and stop for that signal of STOPPING, of which
# SIGUSR2, by which submitit requeues, goes before SIGTERM.
_SAVE = 1
_SCALER = "grad_scaler"  # in the section: the state of the host's GradScaler


class CheckpointHook(QuietHook):
    """Saves by time and on SIGTERM or SIGUSR2; puts what this plugin resumes by in checkpoints.

    The host saves at the end of epochs, and every ``CHECKPOINT_ITER_FREQUENCY`` steps. The section
    of the configuration, all keys optional::

        CHECKPOINT:
          PIRL: {KEEP_LAST: 2, KEEP_EVERY: 0, EVERY_MINUTES: 30}
    """

    def __init__(self, keep: Keep) -> None:
        super().__init__()
        self.keep = keep
        self._agreement: Agreement | None = None
        self._weights: object = None  # of the run's very start, None where that was not recorded
        self._epoch_start = 0  # what task.num_updates was, which counts images

    @classmethod
    def from_config(cls, config: AttrDict) -> CheckpointHook:
        """Build the hook from the host's whole configuration."""
        return cls(Keep(**(config.CHECKPOINT.get("PIRL") or {})))

    def on_start(self, task: SelfSupervisionTask) -> None:
        """Take part in what the host saves, and listen for signals."""
        resumed = Path(task.checkpoint_path).resolve() if task.checkpoint_path else None
        folder = Path(task.checkpoint_folder)
        run = RunFolder(folder, self.keep, resumed)
        saver = Saver(run, lambda inside: self._section(task, inside))
        set_saver(str(folder), saver)
        self._weights = (
            initial_weights(task.config)
            if resumed is None
            else (task.checkpoint.get(PLUGIN_SECTION) or {}).get(RECORD)
        )
        if rank() == 0:
            remove_unfinished(folder)
            if resumed is not None and resumed.parent == folder.resolve():
                saver.take_up(task.checkpoint, resumed.name)
        scale = (task.checkpoint or {}).get(PLUGIN_SECTION, {}).get(_SCALER)
        if scale and (scaler := _scaler_of(task)) is not None:
            scaler.load_state_dict(scale)
        self._agreement = Agreement(task.device)
        signals.poll()

    def on_phase_start(self, task: SelfSupervisionTask) -> None:
        """Give back the learning rate of the epoch's start, where it changes once an epoch."""
        self._saver(task).paused = False
        if not task.train:
            return
        done = samples_done(task)
        self._epoch_start = task.num_updates - done
        if done:
            task.num_updates = self._epoch_start
            task.optimizer.on_epoch(task.where)
            task.num_updates += done

    def on_forward(self, task: SelfSupervisionTask) -> None:
        """Keep the host from saving until the step is whole."""
        self._saver(task).paused = True

    def on_step(self, task: SelfSupervisionTask) -> None:
        """Save where it is time or a signal came, on all ranks after the same step.

        A test has nothing to save: a signal ends it, and it is done again.

        Raises:
            SystemExit: 128 and the signal's number, once the checkpoint is written.
        """
        saver = self._saver(task)
        saver.paused = False
        if self._agreement is None:
            return
        wish = self._agreement.exchange(self._wish(saver) if task.train else self._wished)
        if not wish or (wish == _SAVE and not task.train):  # offered in the last step of training
            return
        if task.train:
            if wish > _SAVE or not _host_saves(task):
                self._save(task)
            saver.saved_at = time.monotonic()
        self._agreement.finish()  # offered before this save; a signal's wish is offered again
        if wish > _SAVE:
            done = (
                f"after step {task.iteration}, which is saved in {task.checkpoint_folder}; the "
                f"same command goes on from there"
                if task.train
                else "in a test; the same command goes on from the newest checkpoint"
            )
            _stop(wish, done)

    def end_if_asked(self) -> None:
        """Collective: act on a signal before the first step, of which there is nothing to save.

        Raises:
            SystemExit: 128 and the signal's number.
        """
        if self._agreement is None:
            return
        wish = self._agreement.exchange(self._wished)
        if wish > _SAVE:
            self._agreement.finish()
            _stop(wish, "before the first step; the same command begins again")

    def on_end(self, task: SelfSupervisionTask) -> None:
        """Restore the signals' handlers of before."""
        if self._agreement is not None:
            self._agreement.finish()
        signals.poll(False)

    @property
    def _wished(self) -> int:
        number = signals.requested()
        return STOPPING.index(signal.Signals(number)) + _SAVE + 1 if number else 0

    def _wish(self, saver: Saver) -> int:
        if self._wished:
            return self._wished
        minutes = self.keep.EVERY_MINUTES
        due = minutes and time.monotonic() - saver.saved_at >= 60 * minutes
        return _SAVE if rank() == 0 and due else 0

    def _save(self, task: SelfSupervisionTask) -> None:
        for hook in task.hooks:
            if isinstance(hook, ShardCheckpointHook):
                hook.save(task)
        # The host's own hook: _checkpoint_model in the wheel, checkpoint_model in git main.
        from vissl.hooks.log_hooks import LogLossMetricsCheckpointHook

        for hook in task.hooks:
            if isinstance(hook, LogLossMetricsCheckpointHook):
                when = {"mode_frequency": 1, "mode_num": task.iteration, "mode": "iteration"}
                if hasattr(hook, "checkpoint_model"):
                    hook.checkpoint_model(task, world_size=hook.world_size, **when)
                else:
                    hook._checkpoint_model(task, **when)

    def _section(self, task: SelfSupervisionTask, inside: bool) -> dict[str, object]:
        section: dict[str, object] = {
            "version": 1,
            "settings": resume_settings(task.config),
            RECORD: self._weights,
            "samples_done": task.num_updates - self._epoch_start if inside else 0,
        }
        if (scaler := _scaler_of(task)) is not None:
            section[_SCALER] = scaler.state_dict()  # which the host leaves out
        return section

    def _saver(self, task: SelfSupervisionTask) -> Saver:
        saver = saver_of(task.checkpoint_folder)
        assert saver is not None, "the hook's on_start sets it"
        return saver


def _stop(wish: int, done: str) -> NoReturn:
    number = STOPPING[wish - _SAVE - 1]
    if world_size() > 1:
        distributed.barrier()  # no rank ends while rank 0 writes
    if rank() == 0:
        logging.warning(f"pirl_plugin: stopped by {number.name} {done}")
    raise SystemExit(128 + number)


def _scaler_of(task: SelfSupervisionTask) -> GradScaler | None:
    """What scales the loss with the host's float16; None without it, and where it does nothing."""
    scaler = task.amp_grad_scaler
    return scaler if scaler is not None and scaler.is_enabled() else None


def _host_saves(task: SelfSupervisionTask) -> bool:
    """Whether the host saves after this step anyway."""
    every = task.config["CHECKPOINT"]["CHECKPOINT_ITER_FREQUENCY"]
    return bool(every > 0 and task.iteration % every == 0)
