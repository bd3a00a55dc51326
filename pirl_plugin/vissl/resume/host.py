"""Checkpoints of a run: write each one whole, and resume from the newest that loads."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.failures import Refused
from pirl_plugin.files import atomic_write, link_relatively, read_json_lines
from pirl_plugin.settings import is_ours

if TYPE_CHECKING:
    from torch.utils.data import DataLoader
    from vissl.config import AttrDict
    from vissl.data.ssl_dataset import GenericSSLDataset
    from vissl.trainer.train_task import SelfSupervisionTask

    from pirl_plugin.vissl.resume.folder import Found


def save_whole(module: Any) -> None:
    """Never worked: the host writes checkpoints in place, so an interruption destroys them.

    Now they are written to another file, flushed and renamed, for all approaches. In runs of this
    plugin, its hook adds data to the checkpoint, and removes checkpoints that are not kept.
    """
    in_place = module.save_checkpoint

    @functools.wraps(in_place)
    def save_checkpoint(
        checkpoint_folder: str, state: dict[str, Any], checkpoint_file: str = "checkpoint.torch"
    ) -> str:
        import torch

        from pirl_plugin.vissl.resume.hook import HOOKS

        if "://" in checkpoint_folder:  # not a disk: the host's path managers write it
            return str(in_place(checkpoint_folder, state, checkpoint_file))
        hook = HOOKS.get(os.path.realpath(checkpoint_folder))
        if hook is not None:
            hook.complete(state, checkpoint_file)
        with atomic_write(Path(checkpoint_folder, checkpoint_file)) as file:
            torch.save(state, file)
        if hook is not None:
            hook.record(state, checkpoint_file)
        return f"{checkpoint_folder}/{checkpoint_file}"

    module.save_checkpoint = save_checkpoint


def link_newest(module: Any) -> None:
    """Broke: ``checkpoint.torch`` is an absolute link, or a dangling link for a relative folder.

    It breaks if the folder moves. A dangling link is never replaced: ``[Errno 17] File exists``.
    """
    original = module.create_file_symlink

    @functools.wraps(original)
    def create_file_symlink(file1: str, file2: str) -> None:
        if "://" in file2:
            original(file1, file2)
            return
        try:
            link_relatively(Path(file1), Path(file2))
        except OSError as error:  # as in the host: some file systems have no links
            logging.info(f"Could NOT create symlink. Error: {error}")

    module.create_file_symlink = create_file_symlink


def resume_from_what_loads(module: Any) -> None:
    """Never worked: the host checks the names of files, not their content.

    A final file of 0 bytes ends a run as finished, and a damaged newest file ends every restart.
    """
    finished, resume = module.is_training_finished, module.get_resume_checkpoint
    looked: dict[str, Found] = {}  # results of the first function, for the second

    @functools.wraps(finished)
    def is_training_finished(cfg: AttrDict, checkpoint_folder: str) -> bool:
        if not _applies(cfg, checkpoint_folder):
            return bool(finished(cfg, checkpoint_folder))
        # The host's link is to the newest checkpoint; we need the newest that loads.
        cfg.CHECKPOINT.USE_SYMLINK_CHECKPOINT_FOR_RESUME = False
        found = looked[checkpoint_folder] = _look(cfg, checkpoint_folder)
        if not found.final or (cfg.TEST_MODEL and _last_test_is_left(found)):
            return False
        logging.warning(
            f"The run in {checkpoint_folder} is finished, with {found.path}; for another "
            f"run, give another config.CHECKPOINT.DIR"
        )
        return True

    @functools.wraps(resume)
    def get_resume_checkpoint(cfg: AttrDict, checkpoint_folder: str) -> str | None:
        if not _applies(cfg, checkpoint_folder):
            path: str | None = resume(cfg, checkpoint_folder)
            return path
        found = looked.pop(checkpoint_folder, None) or _look(cfg, checkpoint_folder)
        if found.path is None:
            return None
        logging.info(f"Resume from file: {found.path}")
        return str(found.path)

    module.is_training_finished = is_training_finished
    module.get_resume_checkpoint = get_resume_checkpoint


def skip_batches_done(module: Any) -> None:
    """Broke: resuming within an epoch repeats the epoch, and continues after the run's end.

    The host's ``StatefulDistributedSampler`` would give each rank a fixed slice of the data. Here
    the order is the same as in ``DistributedSampler``.
    """
    from pirl_plugin.vissl.resume.hook import samples_done

    task = module.SelfSupervisionTask
    compute, update = task._compute_start_iter_from_checkpoint, task._update_classy_state

    @functools.wraps(compute)
    def _compute_start_iter_from_checkpoint(self: SelfSupervisionTask, phase_type: str) -> int:
        if not is_ours(self.config):
            return int(compute(self, phase_type))
        if phase_type != "train":
            return 0
        return samples_done(self) // self.datasets["train"].get_global_batchsize()

    @functools.wraps(update)
    def _update_classy_state(
        self: SelfSupervisionTask, state_dict: Mapping[str, Any] | None = None
    ) -> object:
        result = update(self, state_dict)
        if state_dict is not None and is_ours(self.config) and self.train:
            # The host counts batches. If the earlier run had another batch size, the position in
            # the schedule would be wrong, and could pass the end.
            epoch = self.num_batches_per_phase * int(self.get_global_batchsize())
            updates = (self.train_phase_idx + 1) * epoch + samples_done(self)
            if updates != self.num_updates:
                self.num_updates = updates
                self.optimizer.on_epoch(self.where)
        return result

    task._compute_start_iter_from_checkpoint = _compute_start_iter_from_checkpoint
    task._update_classy_state = _update_classy_state


def sample_what_is_left(module: Any) -> None:
    """Patch the loader of our runs: see :mod:`pirl_plugin.vissl.resume.position`."""
    original = module.build_dataloader

    @functools.wraps(original)
    def build_dataloader(
        dataset: GenericSSLDataset, dataset_config: AttrDict, *args: object, **kwargs: Any
    ) -> DataLoader[object]:
        from pirl_plugin.vissl.resume.position import (
            kill_workers_at_exit,
            resuming_sampler,
            start_worker,
        )

        if is_ours(dataset.cfg) and kwargs.get("split") == "train":
            kwargs.setdefault("get_sampler", resuming_sampler(module.get_sampler))
            seeds = kwargs.get("worker_init_fn", module.set_dataloader_seeds)
            on_cpu = dataset.cfg.MACHINE.DEVICE == "cpu"
            kwargs["worker_init_fn"] = functools.partial(start_worker, seeds, on_cpu)
            kill_workers_at_exit()
        return original(dataset, dataset_config, *args, **kwargs)

    module.build_dataloader = build_dataloader


def _applies(config: AttrDict, folder: str) -> bool:
    return is_ours(config) and bool(config.CHECKPOINT.AUTO_RESUME) and "://" not in folder


def _look(config: AttrDict, folder: str) -> Found:
    """Find the checkpoint to resume from.

    Raises:
        ValueError: it belongs to another run, or no checkpoint in the folder loads.
    """
    from pirl_plugin.checkpoints.training_run import SECTION, describe_difference, run_settings
    from pirl_plugin.vissl.resume.folder import find_newest

    section = config.CHECKPOINT
    found = find_newest(
        Path(folder),
        nth=int(section.LATEST_CHECKPOINT_RESUME_FILE_NUM),
        skip_final=bool(section.OVERWRITE_EXISTING),
    )
    for name, why in found.skipped.items():
        logging.warning(f"Skipped {Path(folder, name)}: {why}")
    if found.path is None and found.skipped:
        raise Refused(
            f"config.CHECKPOINT.DIR = {folder}: expected a checkpoint that loads, found none among "
            f"{', '.join(found.skipped)}; restore a good one, or remove these to start again"
        )
    if found.path is not None:
        before = (found.content.get(SECTION) or {}).get("settings") or {}
        if other := describe_difference(before, run_settings(config), found.path):
            raise Refused(other)
    return found


def _last_test_is_left(found: Found) -> bool:
    """Return whether a run was stopped between its final checkpoint and the end of its test.

    Each finished phase has its line in ``metrics.json``.
    """
    lines = read_json_lines(Path(str(found.path)).with_name("metrics.json"))
    return not lines or int(lines[-1]["phase_idx"]) <= int(found.content["phase_idx"])
