"""When a run saves, what it adds to the host's checkpoints, and how it goes on from them."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from torch import distributed

from pirl_plugin.checkpoints.run_folder import (
    SECTION,
    Keep,
    RunFolder,
    check_finite,
    shards_of_step,
)
from pirl_plugin.checkpoints.training_run import (
    describe_other_images,
    images_digest,
    run_record,
    write_run_config,
)
from pirl_plugin.distributed import on_all_ranks, rank, world_size
from pirl_plugin.files import remove_unfinished
from pirl_plugin.vissl import signals
from pirl_plugin.vissl.hooks.agreement import Agreement
from pirl_plugin.vissl.hooks.base import QuietHook
from pirl_plugin.vissl.signals import STOPPING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.amp import GradScaler
    from vissl.config import AttrDict
    from vissl.data.ssl_dataset import GenericSSLDataset
    from vissl.trainer.train_task import SelfSupervisionTask

# What rank 0 wishes when it is time; more means save and stop for that signal of STOPPING.
_SAVE = 1
_SCALER = "grad_scaler"  # in the section: the state of the host's GradScaler
HOOKS: dict[str, CheckpointHook] = {}
"""Folder of a run to its hook, for the patch of the host's writer of checkpoints."""


class CheckpointHook(QuietHook):
    """Saves by time and on signals; adds to checkpoints what a run resumes by; saves bank shards.

    The host saves at the end of epochs, and every ``CHECKPOINT_ITER_FREQUENCY`` steps; it saves
    the loss of rank 0 alone. The shards of a sharded bank go to ``memory_bank/step_STEP`` before
    the checkpoint, which holds their checksums. The section, all keys optional::

        CHECKPOINT:
          PIRL: {KEEP_LAST: 2, KEEP_EVERY: 0, EVERY_MINUTES: 30}
    """

    def __init__(self, keep: Keep) -> None:
        super().__init__()
        self.keep = keep
        self.paused = False  # between two steps' states, from which no run could go on
        self._saved_at = time.monotonic()
        self._agreement: Agreement | None = None
        self._record: dict[str, Any] = {}
        self._shards: tuple[int, dict[str, str]] | None = None  # step, file to checksum
        self._epoch_start = 0  # what task.num_updates was, which counts images

    @classmethod
    def from_config(cls, config: AttrDict) -> CheckpointHook:
        """Build the hook from the host's whole configuration."""
        return cls(Keep(**(config.CHECKPOINT.get("PIRL") or {})))

    def on_start(self, task: SelfSupervisionTask) -> None:
        """Compare the images with the checkpoint's, load shards, and listen for signals.

        Raises:
            ValueError: on all ranks, where the images are others.
        """
        self._task, folder = task, Path(task.checkpoint_folder)
        before: dict[str, Any] = (task.checkpoint or {}).get(SECTION) or {}

        def begin() -> None:
            if rank() != 0:
                return
            images = digests(task)
            self._record = run_record(task.config, images)
            if task.checkpoint_path:
                other = describe_other_images(images, task.checkpoint, task.checkpoint_path)
                if other is not None:
                    raise ValueError(other)
                # The files of weights that the run started from may be gone.
                self._record["settings"] = before.get("settings", self._record["settings"])
            remove_unfinished(folder)
            resumed = Path(task.checkpoint_path).resolve() if task.checkpoint_path else None
            self._folder = RunFolder(folder, self.keep, resumed)
            write_run_config(task.config, folder)
            HOOKS[os.path.realpath(folder)] = self

        on_all_ranks(begin)
        bank = getattr(task.loss, "bank", None)
        if bank is not None and not bank.persistent and bank.awaits_load:
            bank.load(folder / shards_of_step(task.loss.step), before.get("shards"))
            logging.info(f"Loaded the memory bank's shards of step {task.loss.step}")
        if before.get(_SCALER) and (scaler := _scaler_of(task)) is not None:
            scaler.load_state_dict(before[_SCALER])
        self._agreement = Agreement(task.device)
        signals.poll()

    def on_phase_start(self, task: SelfSupervisionTask) -> None:
        """Set the learning rate of the epoch's start, where it changes once an epoch."""
        self.paused = False
        if not task.train:
            return
        done = samples_done(task)
        self._epoch_start = task.num_updates - done
        if done:
            task.num_updates = self._epoch_start
            task.optimizer.on_epoch(task.where)
            task.num_updates += done

    def on_forward(self, task: SelfSupervisionTask) -> None:
        """Keep the host, which saves where it finds NaN, from saving until the step is whole."""
        self.paused = True

    def on_step(self, task: SelfSupervisionTask) -> None:
        """Save where it is time or a signal came, on all ranks after the same step.

        A test has nothing to save: a signal ends it, and it is done again.

        Raises:
            SystemExit: 128 and the signal's number, once the checkpoint is written.
        """
        self.paused = False
        every = task.config["CHECKPOINT"]["CHECKPOINT_ITER_FREQUENCY"]
        host_saves = bool(task.train and every > 0 and task.iteration % every == 0)
        if host_saves:
            self._save_shards(task)
        if self._agreement is None:
            return
        wish = self._agreement.exchange(self._wish() if task.train else self._wished)
        if not wish or (wish == _SAVE and not task.train):  # offered in the last step of training
            return
        if task.train:
            if wish > _SAVE or not host_saves:
                self._save(task)
            self._saved_at = time.monotonic()
        self._agreement.finish()  # offered before this save; a signal's wish is offered again
        if wish > _SAVE:
            done = f"after step {task.iteration}, which is saved" if task.train else "in a test"
            _stop(wish, f"{done}; the same command goes on from {task.checkpoint_folder}")

    def on_phase_end(self, task: SelfSupervisionTask) -> None:
        """Save shards where the host is about to save at the end of an epoch."""
        every = task.config["CHECKPOINT"]["CHECKPOINT_FREQUENCY"]
        last = task.train_phase_idx == task.num_train_phases - 1
        if task.train and (last or task.train_phase_idx % every == 0):
            self._save_shards(task)

    def end_if_asked(self) -> None:
        """Collective: act on a signal before the first step, when there is nothing to save.

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
        """Let signals interrupt again, for no step reads them any more."""
        if self._agreement is not None:
            self._agreement.finish()
        signals.poll(False)

    def prepare(self, content: dict[str, Any], name: str) -> bool:
        """Complete what the host is about to save; returns False where it must not be saved.

        Raises:
            FloatingPointError: it holds NaN or infinities.
        """
        if self.paused:
            logging.warning(f"{name} was not saved: the model's output is not finite")
            return False
        state, inside = content["classy_state_dict"], "model_iteration" in name
        for part in (state["base_model"], state["optimizer"], content["loss"]):
            check_finite(part, name)
        done = self._task.num_updates - self._epoch_start if inside else 0
        section = {**self._record, "samples_done": done}
        if self._shards is not None:
            section["shards"] = self._shards[1]
        if (scaler := _scaler_of(self._task)) is not None:
            section[_SCALER] = scaler.state_dict()  # which the host leaves out
        content[SECTION] = section
        if inside:
            content["iteration_num"] -= 1  # counted once more where the epoch begins again
        return True

    def record(self, content: dict[str, Any], name: str) -> None:
        """Remove what need not stay, now that ``name`` is written."""
        self._saved_at = time.monotonic()
        self._folder.record(content, name)

    @property
    def _wished(self) -> int:
        number = signals.requested()
        return STOPPING.index(signal.Signals(number)) + _SAVE + 1 if number else 0

    def _wish(self) -> int:
        if self._wished:
            return self._wished
        minutes = self.keep.EVERY_MINUTES
        due = minutes and time.monotonic() - self._saved_at >= 60 * minutes
        return _SAVE if rank() == 0 and due else 0

    def _save(self, task: SelfSupervisionTask) -> None:
        self._save_shards(task)
        # The host's own hook: _checkpoint_model in the wheel, checkpoint_model in git main.
        from vissl.hooks.log_hooks import LogLossMetricsCheckpointHook

        for hook in task.hooks:
            if isinstance(hook, LogLossMetricsCheckpointHook):
                when = {"mode_frequency": 1, "mode_num": task.iteration, "mode": "iteration"}
                if hasattr(hook, "checkpoint_model"):
                    hook.checkpoint_model(task, world_size=hook.world_size, **when)
                else:
                    hook._checkpoint_model(task, **when)

    def _save_shards(self, task: SelfSupervisionTask) -> None:
        """Collective: write the shards of the step just done, unless the bank is replicated."""
        bank, step = getattr(task.loss, "bank", None), getattr(task.loss, "step", 0)
        if bank is None or bank.persistent or (self._shards and self._shards[0] == step):
            return
        folder = Path(task.checkpoint_folder) / shards_of_step(step)
        self._shards = step, bank.save(folder)


def samples_done(task: SelfSupervisionTask) -> int:
    """Return the images of the epoch that begins now which all ranks had done before the stop.

    Zero in every epoch but the first after a resume. At most an epoch's: what wrote the checkpoint
    may have filled up a last batch that was larger than this run's.
    """
    checkpoint = task.checkpoint
    if checkpoint is None or task.train_phase_idx not in (
        checkpoint["train_phase_idx"],  # while the checkpoint is loaded
        checkpoint["train_phase_idx"] + 1,  # when the epoch begins
    ):
        return 0
    epoch = len(task.dataloaders["train"]) * int(task.datasets["train"].get_global_batchsize())
    return min(int((checkpoint.get(SECTION) or {}).get("samples_done", 0)), epoch)


def digests(task: SelfSupervisionTask) -> dict[str, str]:
    """Return split to digest of its list of images; splits of other data sources are left out."""
    from vissl.data.dataset_catalog import get_data_files

    found = {}
    for split, data in task.datasets.items():
        sources = getattr(data, "data_objs", [])
        if sources and hasattr(sources[0], "get_image_paths"):
            (path, *_), _ = get_data_files(split.upper(), task.config.DATA)
            found[split] = digest_of(sources[0], path, limited_to(data))
    return found


def digest_of(images: Any, path: str, rows: Sequence[int] | None = None) -> str:
    """Return the digest of a source's images, or of some rows, relative to its folder.

    Args:
        images: a data source of this plugin, or another that has ``get_image_paths``.
        path: what it reads: a folder, or a list in a folder.
        rows: of which images.
    """
    from pirl_plugin.vissl.adapters.source import PIRLDiskDataset

    ours = isinstance(images, PIRLDiskDataset)
    path_of = images.source.path_of if ours else images.get_image_paths().__getitem__
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    return images_digest(map(path_of, range(len(images)) if rows is None else rows), folder)


def limited_to(data: GenericSSLDataset) -> Sequence[int] | None:
    """Return which images of its source a data set takes for ``DATA_LIMIT``; None for all.

    The host chooses them when the first is read, by its seed, and keeps the choice.
    """
    if data.data_limit < 0:
        return None
    if not data._can_random_subset_data_sources():
        return range(data.data_limit)
    if not data._subset_initialized:
        if data.data_limit_sampling.IS_BALANCED and not data.labels_init:
            data.load_labels()
        data._init_image_and_label_subset()
    subset: Sequence[int] = data.image_and_label_subset
    return subset


def _stop(wish: int, done: str) -> NoReturn:
    number = STOPPING[wish - _SAVE - 1]
    if world_size() > 1:
        distributed.barrier()  # no rank ends while rank 0 writes
    if rank() == 0:
        logging.warning(f"pirl_plugin: stopped by {number.name} {done}")
    raise SystemExit(128 + number)


def _scaler_of(task: SelfSupervisionTask) -> GradScaler | None:
    """Return what scales the loss with the host's float16; None where nothing does."""
    scaler = task.amp_grad_scaler
    return scaler if scaler is not None and scaler.is_enabled() else None
