"""Save checkpoints where VISSL does, and also by time and on signals."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from classy_vision.hooks import ClassyHook
from torch import distributed
from vissl.hooks.log_hooks import LogLossMetricsCheckpointHook
from vissl.utils.checkpoint import is_checkpoint_phase

from pirl_plugin.checkpoints.network_record import NETWORK
from pirl_plugin.checkpoints.read import SECTION, CheckpointName, section_of
from pirl_plugin.models.network_config import network_config_of
from pirl_plugin.system import watcher
from pirl_plugin.system.files import remove_unfinished
from pirl_plugin.system.ranks import errors_on_all_ranks, rank, world_size
from pirl_plugin.vissl.repairs.transfers import link_checkpoint
from pirl_plugin.vissl.resume.exchange import SAVE, ExchangeHook
from pirl_plugin.vissl.resume.folder import Keep, RunFolder, shards_of_step
from pirl_plugin.vissl.resume.position import begin_epoch, images_of_epoch
from pirl_plugin.vissl.resume.record import (
    make_checkpoint_record,
    refuse_other_images,
    write_run_config,
)
from pirl_plugin.vissl.sections import num_ranks, read_section
from pirl_plugin.vissl.task import Task

if TYPE_CHECKING:
    from torch.amp import GradScaler
    from vissl.config import AttrDict

_SCALER = "grad_scaler"  # in the section: the state of VISSL's GradScaler
_SAVED = "saved"  # the run's checkpoints: name → step of their shards


class CheckpointHook(LogLossMetricsCheckpointHook):
    """VISSL's checkpoint hook, extended for runs with this plugin.

    VISSL saves after epochs, and every ``CHECKPOINT_ITER_FREQUENCY`` steps. This hook also saves by
    time and on signals. It adds what VISSL leaves out: the run's record, the position in the epoch,
    and the GradScaler's state. VISSL saves only rank 0's loss, so a sharded bank is written to
    ``memory_bank/step_STEP`` before the checkpoint, which stores the shards' checksums. All keys in
    the section are optional::

        CHECKPOINT:
          PIRL: {KEEP_LAST: 2, KEEP_EVERY: 0, EVERY_MINUTES: 30}

    Args:
        config: VISSL's complete configuration, with the run's record.
        exchange: hook that makes all ranks save after the same step.
    """

    # VISSL would save a model with non-finite outputs as the newest checkpoint.
    on_forward = ClassyHook._noop

    def __init__(self, config: AttrDict, exchange: ExchangeHook) -> None:
        super().__init__(num_ranks(config))
        self.keep = read_section(Keep, config, "CHECKPOINT.PIRL")
        self._config = config
        self._exchange = exchange
        if self.keep.EVERY_MINUTES:
            exchange.save_after_s = 60 * self.keep.EVERY_MINUTES
        self._saved_iteration = -1
        self._shards_step: int | None = None  # the step of the last saved shards
        self._checksums: dict[str, str] = {}  # of these shards, by file name
        self._record: dict[str, Any] = {}
        self._section: dict[str, Any] = {}  # for the checkpoint being written

    @classmethod
    def name(cls) -> str:
        """Return the key for this hook's state in checkpoints."""
        return SECTION

    def get_classy_state(self) -> dict[str, Any]:
        """Return this plugin's data for the checkpoint being written."""
        return self._section

    def on_start(self, task: Task) -> None:
        """Compare images with the checkpoint's, load shards, and start to listen for signals.

        Raises:
            Refused: the images differ; raised on all ranks.
        """
        folder = Path(task.checkpoint_folder)
        section = section_of(task.checkpoint) if task.checkpoint else {}
        with errors_on_all_ranks():
            if rank() == 0:
                self._record_run(task, folder, section)
        # VISSL has loaded rank 0's loss on all ranks, without a sharded bank.
        bank = getattr(task.loss, "bank", None)
        if bank is not None and not bank.replicated and bank.awaits_load:
            bank.load(folder / shards_of_step(task.loss.step), section.get("shards"))
            logging.info(f"Loaded the memory bank shards from step {task.loss.step}")
        scaler = active_scaler(task)
        if scaler is not None and _SCALER in section:
            scaler.load_state_dict(section[_SCALER])
        watcher.current().polled = True  # from now on, signals wait for the next step

    def _record_run(self, task: Task, folder: Path, section: Mapping[str, Any]) -> None:
        """Compare images with the checkpoint's, make the run's record, and tidy the run's folder.

        Args:
            task: VISSL's task.
            folder: the run's folder.
            section: this plugin's data in the checkpoint to resume from; empty for a new run.

        Raises:
            Refused: the images differ.
        """
        identities = {}
        for split, data in task.datasets.items():
            identities[split.upper()] = data.identity()
        resumed = Path(task.checkpoint_path).resolve() if task.checkpoint_path else None
        # Compare first: a refused run leaves the folder unchanged.
        if resumed is not None:
            refuse_other_images(identities, section, resumed)
            # The run may have been killed before linking this checkpoint.
            link_checkpoint(folder / resumed.name)
        self._record = make_checkpoint_record(self._config, identities, section)
        network = network_config_of(task.model).with_values_of(task.images)
        self._record[NETWORK] = network.to_dict()
        remove_unfinished(folder)
        self._folder = RunFolder(folder, self.keep, section.get(_SAVED, {}))
        write_run_config(self._record["config"], folder)

    def on_phase_start(self, task: Task) -> None:
        """Set image count and learning rate for an epoch."""
        if task.train:
            begin_epoch(task)

    def on_step(self, task: Task) -> None:
        """Save by time or on a signal, on all ranks after the same step.

        A test saves nothing: a signal ends it, and a resumed run repeats it.

        Raises:
            Interrupted: by the signal, after the checkpoint is written.
        """
        super().on_step(task)  # CHECKPOINT_ITER_FREQUENCY, which may have saved this step
        agreed = self._exchange.agreed
        if task.train and agreed and self._saved_iteration != task.iteration:
            self._save_now(task)
        if agreed > SAVE:
            saved = f"after step {task.iteration}, which is saved"
            where = saved if task.train else "during a test"
            stop(agreed, where)

    def on_end(self, task: Task) -> None:
        """Let signals end the process at once again, because no more steps poll them."""
        watcher.current().polled = False

    def _checkpoint_model(self, task: Task, *args: Any, **kwargs: Any) -> None:
        """Save if VISSL 0.1.6 would, by its method of this name. Collective."""
        self._save(super()._checkpoint_model, task, *args, **kwargs)

    def checkpoint_model(self, task: Task, world_size: int, *args: Any, **kwargs: Any) -> None:
        """Save if VISSL's git main would, by its static method of this name. Collective."""
        host_method = partial(super().checkpoint_model, world_size=world_size)
        self._save(host_method, task, *args, **kwargs)

    def _save_now(self, task: Task) -> None:
        # With a frequency of 1, VISSL saves at any step.
        if hasattr(LogLossMetricsCheckpointHook, "checkpoint_model"):
            self.checkpoint_model(task, self.world_size, 1, task.iteration, "iteration")
        else:
            self._checkpoint_model(task, 1, task.iteration, "iteration")

    def _save(
        self,
        host_method: Callable[..., object],
        task: Task,
        mode_frequency: int,
        mode_num: int,
        mode: str = "phase",
    ) -> None:
        """Save if VISSL will, with the shards before it, and remove old checkpoints after it."""
        epoch = task.train_phase_idx
        saves = is_checkpoint_phase(mode_num, mode_frequency, epoch, task.num_train_phases, mode)
        if not task.train or not saves:
            return
        # Shards come first, so that each checkpoint has its shards.
        self._save_shards(task)
        # Collect the data that VISSL's checkpoint lacks.
        within_epoch = mode == "iteration"
        num_images = 0
        if within_epoch:
            num_images = task.num_updates - epoch * images_of_epoch(task)
        self._section = {**self._record, "samples_done": num_images}
        if self._checksums:
            self._section["shards"] = self._checksums
        scaler = active_scaler(task)
        if scaler is not None:
            self._section[_SCALER] = scaler.state_dict()
        if rank() == 0:
            is_final = mode == "phase" and epoch == task.num_train_phases - 1
            self._folder.add(str(CheckpointName(mode, mode_num, is_final)), self._shards_step)
            self._section[_SAVED] = dict(self._folder.saved)
        num_steps = task.local_iteration_num
        if within_epoch:
            task.local_iteration_num = num_steps - 1  # VISSL adds 1 when the epoch resumes
        host_method(task, mode_frequency=mode_frequency, mode_num=mode_num, mode=mode)
        task.local_iteration_num = num_steps
        self._section = {}
        self._exchange.saved_at = time.monotonic()
        self._saved_iteration = task.iteration
        if rank() == 0:
            self._folder.remove_old()

    def _save_shards(self, task: Task) -> None:
        """Write the last step's shards, unless the bank is replicated. Collective."""
        bank = getattr(task.loss, "bank", None)
        if bank is None or bank.replicated:
            return
        step = int(task.loss.step)
        # Two checkpoints from one step, within and after an epoch, share their shards.
        if self._shards_step != step:
            self._checksums = bank.save(Path(task.checkpoint_folder) / shards_of_step(step))
            self._shards_step = step


def active_scaler(task: Task) -> GradScaler | None:
    """Return the enabled GradScaler for VISSL's float16; None without one."""
    scaler = task.amp_grad_scaler
    return scaler if scaler is not None and scaler.is_enabled() else None


def stop(number: int, where: str) -> NoReturn:
    """End the run because of a signal, on all ranks after the same step. Collective.

    Args:
        number: signal number.
        where: where the run stops, for the log.

    Raises:
        Interrupted: always.
    """
    if world_size() > 1:
        distributed.barrier()  # no rank ends while rank 0 writes
    if rank() == 0:
        logging.warning(f"stopped by {signal.Signals(number).name} {where}")
    raise watcher.Interrupted(number)
