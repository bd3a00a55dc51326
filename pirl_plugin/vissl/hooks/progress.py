"""Console output of a run: summary, progress, and the next commands.

VISSL's log goes to ``log.txt``. ``PIRL_PLUGIN_CONSOLE=log`` shows it on the console instead.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pirl_plugin.evaluation.next_commands import next_commands
from pirl_plugin.system.console import Progress, put
from pirl_plugin.system.text import counted, span
from pirl_plugin.vissl.task import QuietHook

if TYPE_CHECKING:
    from vissl.config import AttrDict

    from pirl_plugin.vissl.task import Task


PROGRESS = Progress("training", stream="stdout")
"""The line that the run's hook writes; log messages end it."""
_VARIABLE = "PIRL_PLUGIN_CONSOLE"
# Shown VISSL messages begin with these: initial weights and SVM results.
_SHOWN = ("Resume from file", "Loading checkpoint from", "AP for various layers")
# Hidden VISSL warnings begin with these; this plugin causes them.
_EXPECTED = ("Selecting a CPU device", "Torch distributed has already been initialized")


def shows_progress() -> bool:
    """Return whether the console shows progress instead of VISSL's log."""
    return os.environ.get(_VARIABLE) == "page"


def hide_log_behind_progress(
    name: str, *args: object, original: Callable[..., None], **kwargs: object
) -> None:
    """If progress is shown, send VISSL's log only to ``log.txt``; wraps ``setup_logging``."""
    original(name, *args, **kwargs)
    if not shows_progress():
        return
    for handler in logging.getLogger(name).handlers:
        if getattr(handler, "stream", None) is sys.stdout:
            handler.addFilter(_is_shown_beside_progress)
            handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))


def _is_shown_beside_progress(record: logging.LogRecord) -> bool:
    """Return whether the console shows a VISSL message beside the progress."""
    text = str(record.msg)
    is_warning = record.levelno >= logging.WARNING and not text.startswith(_EXPECTED)
    is_shown = is_warning or text.startswith(_SHOWN)
    if is_shown:
        PROGRESS.close()
    return is_shown


def show_start(config: AttrDict, is_first: bool) -> None:
    """Show progress instead of VISSL's log; the first rank prints a summary."""
    import vissl

    from pirl_plugin import __version__

    os.environ.setdefault(_VARIABLE, "page")  # for spawned ranks too
    if not is_first:
        return
    split = config.DATA.TEST if config.TEST_ONLY else config.DATA.TRAIN
    data = ", ".join(map(str, split.DATA_PATHS or split.DATASET_NAMES))
    weights = config.MODEL.WEIGHTS_INIT.PARAMS_FILE or "random"
    host_version = getattr(vissl, "__version__", "(unknown version)")
    put(
        f"pirl_plugin {__version__}, VISSL {host_version}\n"
        f"data      {data}\n"
        f"model     {config.MODEL.TRUNK.NAME}, {config.LOSS.name}, initial weights: {weights}\n"
        f"logs      {config.CHECKPOINT.DIR}\n"
    )


class ProgressHook(QuietHook):
    """Shows the progress line on rank 0.

    Args:
        images_per_step: number of images per step across all ranks.
        export_to: export format for the next commands, ``torchvision`` or ``timm``; None prints no
            commands.
    """

    def __init__(self, images_per_step: int, export_to: str | None = None) -> None:
        super().__init__()
        self._images_per_step = images_per_step
        self._export_to = export_to
        self._began = time.monotonic()

    def on_start(self, task: Task) -> None:
        """Show the number of images, epochs and steps."""
        self._began = time.monotonic()
        # In units of this run's batch; task.iteration counts batches of any size.
        steps_done = int(task.num_updates) // self._images_per_step
        if steps_done:
            PROGRESS.print_line(f"resumed   at step {steps_done:,} of {task.max_iteration:,}")
        if "train" in task.datasets:
            images = f"{len(task.datasets['train']):,} images"
            epochs = counted(task.num_train_phases, "epoch")
            PROGRESS.print_line(
                f"training  {images}, {epochs}, {counted(task.max_iteration, 'step')}"
            )
        PROGRESS.total = 0

    def on_step(self, task: Task) -> None:
        """Count the step's images, and show the epoch and the loss if the line is due."""
        if not task.train:
            return
        if PROGRESS.total:
            epoch = f"epoch {task.train_phase_idx + 1}/{task.num_train_phases}"
            PROGRESS.update(
                self._images_per_step, lambda: f"{epoch}  loss {float(task.last_batch.loss):.4f}"
            )
        else:  # the first step is not timed, because it starts the loader workers
            PROGRESS.begin(task.max_iteration * self._images_per_step, int(task.num_updates))

    def on_phase_end(self, task: Task) -> None:
        """Show test results."""
        if task.train:
            return
        for meter in task.meters:
            value = re.sub(r"(\.\d\d)\d+", r"\1", str(meter.value))  # two decimals
            PROGRESS.print_line(f"test      epoch {task.train_phase_idx + 1}: {value}")

    def on_end(self, task: Task) -> None:
        """Show the run's duration and folder, and the next commands."""
        took = span(time.monotonic() - self._began)
        folder = Path(task.checkpoint_folder)
        PROGRESS.print_line(f"finished  in {took}; checkpoints and log.txt in {folder}")
        checkpoint = folder / "checkpoint.torch"
        if self._export_to is None or not checkpoint.exists():
            return
        for command in next_commands(checkpoint, self._export_to).values():
            PROGRESS.print_line(f"next      {command}")
