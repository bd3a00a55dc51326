"""Write the configuration of a run, and keep the one with which it was trained before."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from pirl_plugin.checkpoints.training_run import RUN_CONFIG, read_config, write_run_config
from pirl_plugin.distributed import rank
from pirl_plugin.evaluation.tables.compare_settings import (
    earlier_configs,
    settings_key,
    settings_of,
)
from pirl_plugin.evaluation.tables.paper_settings.free import FREE, PRETRAINING_FREE
from pirl_plugin.vissl.hooks.base import QuietHook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vissl.trainer.train_task import SelfSupervisionTask


class RunConfigHook(QuietHook):
    """Writes ``train_config.yaml``, on one rank; an earlier one of other settings is kept.

    A run that goes on does so in its first step: one that comes to none changes nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._awaits_step = False

    def on_start(self, task: SelfSupervisionTask) -> None:
        """Write the configuration of a run that begins."""
        self._awaits_step = rank() == 0 and task.checkpoint_path is not None
        if rank() == 0 and not self._awaits_step:
            self._write(task)

    def on_step(self, task: SelfSupervisionTask) -> None:
        """Write that of a run that goes on, with its first step of training."""
        if self._awaits_step and task.train:
            self._awaits_step = False
            self._write(task)

    def _write(self, task: SelfSupervisionTask) -> None:
        folder = Path(task.checkpoint_folder)
        if "://" not in task.checkpoint_folder:
            resumed = task.checkpoint_path is not None
            keep_earlier_config(folder, task.config.to_dict(), resumed)
        write_run_config(task.config, folder)


def keep_earlier_config(folder: Path, config: Mapping[str, object], resumed: bool) -> None:
    """Rename the configuration in a folder where it has other settings than the one to come.

    Args:
        folder: of the run.
        config: the one to come; what may differ between runs of one row may differ here.
        resumed: whether the run goes on from a checkpoint; of one that starts over, the earlier
            configurations are removed.
    """
    file, kept = folder / RUN_CONFIG, earlier_configs(folder)
    if not resumed:
        for stale in kept.values():
            stale.unlink()
        return
    try:
        same = not file.is_file() or _settings(read_config(file)) == _settings(config)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        logging.warning(f"{file} is damaged, and is written again: {error}")
        return
    if not same:
        file.rename(folder / f"train_config_{max(kept, default=0) + 1}.yaml")


def _settings(config: Mapping[str, object]) -> str:
    return settings_key(settings_of(config), [*FREE, *PRETRAINING_FREE])
