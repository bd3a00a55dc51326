"""What a run of this plugin goes on from: the newest checkpoint that loads, of the same run."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.settings import is_ours
from pirl_plugin.utils.json_lines import read_json_lines
from pirl_plugin.vissl.patches.finished_data import check_same_images
from pirl_plugin.vissl.patches.patches import patched

if TYPE_CHECKING:
    from torch.utils.data import DataLoader
    from vissl.config import AttrDict
    from vissl.data.ssl_dataset import GenericSSLDataset
    from vissl.trainer.train_task import SelfSupervisionTask

    from pirl_plugin.checkpoints.resume import Found
    from pirl_plugin.evaluation.tables.compare_settings import Differences
    from pirl_plugin.vissl.host_module import HostModule

_SHOWN = 8  # settings in a warning


def resume_from_what_loads(module: HostModule) -> None:
    """Never worked: the host believes the names of files, of whatever is in them.

    A final file of 0 bytes ended a run as succeeded, and a damaged newest one ended every restart.
    """
    finished, resume = module.is_training_finished, module.get_resume_checkpoint
    looked: dict[str, Found] = {}  # what the first of the two found, for the second

    @functools.wraps(finished)
    def is_training_finished(cfg: AttrDict, checkpoint_folder: str) -> bool:
        if not _applies(cfg, checkpoint_folder):
            return finished(cfg, checkpoint_folder)
        # Its link is to the newest checkpoint; ours is the newest that loads.
        cfg.CHECKPOINT.USE_SYMLINK_CHECKPOINT_FOR_RESUME = False
        found = looked[checkpoint_folder] = _look(cfg, checkpoint_folder)
        if not found.final:
            return False
        _check_same_run(cfg, found)
        if cfg.TEST_MODEL and _last_test_is_left(found):
            return False
        logging.info(
            f"The run in {checkpoint_folder} is finished, with {found.path}; for another one give "
            f"another config.CHECKPOINT.DIR"
        )
        return True

    @functools.wraps(resume)
    def get_resume_checkpoint(cfg: AttrDict, checkpoint_folder: str) -> str | None:
        if not _applies(cfg, checkpoint_folder):
            return resume(cfg, checkpoint_folder)
        found = looked.pop(checkpoint_folder, None) or _look(cfg, checkpoint_folder)
        if found.path is None:
            _refuse_to_start_over(checkpoint_folder, found)
            return None
        _check_same_run(cfg, found)
        _say_what_changes(cfg, found.path)
        logging.info(f"Resume from file: {found.path}")
        return str(found.path)

    module.is_training_finished = is_training_finished
    module.get_resume_checkpoint = get_resume_checkpoint
    patched("resuming from damaged checkpoints")


def skip_batches_done(module: HostModule) -> None:
    """Broke: resuming in the middle of an epoch began it again, and went past the run's end.

    The host's remedy, ``StatefulDistributedSampler``, gives each rank one fixed slice of the data.
    Here the order stays that of ``DistributedSampler``.
    """
    task = module.SelfSupervisionTask
    compute, update = task._compute_start_iter_from_checkpoint, task._update_classy_state

    @functools.wraps(compute)
    def _compute_start_iter_from_checkpoint(self: SelfSupervisionTask, phase_type: str) -> int:
        from pirl_plugin.vissl.hooks.resume import samples_done

        if not is_ours(self.config):
            return compute(self, phase_type)
        if phase_type != "train":
            return 0
        return samples_done(self) // self.datasets["train"].get_global_batchsize()

    @functools.wraps(update)
    def _update_classy_state(
        self: SelfSupervisionTask, state_dict: Mapping[str, Any] | None = None
    ) -> object:
        if state_dict is None or not is_ours(self.config):
            return update(self, state_dict)
        _check_same_model(self, state_dict)
        result = update(self, state_dict)
        _count_updates(self)
        return result

    task._compute_start_iter_from_checkpoint = _compute_start_iter_from_checkpoint
    task._update_classy_state = _update_classy_state
    patched("resuming in the middle of an epoch")


def sample_what_is_left(module: HostModule) -> None:
    """The loader of our runs: :mod:`pirl_plugin.vissl.patches.loading`."""
    original = module.build_dataloader

    @functools.wraps(original)
    def build_dataloader(
        dataset: GenericSSLDataset, dataset_config: AttrDict, *args: object, **kwargs: Any
    ) -> DataLoader[object]:
        from pirl_plugin.vissl.patches.loading import (
            WorkerStart,
            kill_workers_at_exit,
            read_between_steps,
            reads_between_steps,
            resuming_sampler,
        )

        if is_ours(dataset.cfg) and kwargs.get("split") == "train":
            kwargs.setdefault("get_sampler", resuming_sampler(module.get_sampler))
            seeds = kwargs.get("worker_init_fn", module.set_dataloader_seeds)
            kwargs["worker_init_fn"] = WorkerStart(seeds, dataset.cfg.MACHINE.DEVICE == "cpu")
            kill_workers_at_exit()
            if reads_between_steps(dataset.cfg):
                workers = kwargs["num_dataloader_workers"]
                read_between_steps(dataset, workers, kwargs["multi_processing_method"])
                kwargs["num_dataloader_workers"] = 0
        return original(dataset, dataset_config, *args, **kwargs)

    module.build_dataloader = build_dataloader


def _check_same_model(task: SelfSupervisionTask, state: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another trunk, which older versions saved without its configuration.

    Raises:
        MismatchError: what differs.
    """
    from pirl_plugin.checkpoints.compare import MismatchError, compare_with_model

    found = state["base_model"]["model"]["trunk"]
    mismatch = compare_with_model(task.base_model.trunk.state_dict(), found)
    if mismatch:
        raise MismatchError(
            f"{task.checkpoint_path} is of another trunk than config.MODEL.TRUNK: {mismatch}; give "
            f"the configuration of its run, or another config.CHECKPOINT.DIR to start a new one"
        )


def _count_updates(task: SelfSupervisionTask) -> None:
    """Count the images of the epochs that are done by this run's batch.

    The host counts whole batches, whose sum depends on the batch that the checkpoint was made with:
    its place in the schedule would pass the end.
    """
    from pirl_plugin.vissl.hooks.resume import samples_done

    if not task.train:
        return
    epoch = task.num_batches_per_phase * int(task.get_global_batchsize())
    updates = (task.train_phase_idx + 1) * epoch + samples_done(task)
    if updates != task.num_updates:
        logging.warning(
            f"The checkpoint counts {task.num_updates} images, of another batch; with this one it "
            f"is {updates}, the place in the schedule"
        )
        task.num_updates = updates
        task.optimizer.on_epoch(task.where)


def _applies(config: AttrDict, folder: str) -> bool:
    return is_ours(config) and bool(config.CHECKPOINT.AUTO_RESUME) and "://" not in folder


def _look(config: AttrDict, folder: str) -> Found:
    from pirl_plugin.checkpoints.resume import find_newest

    section = config.CHECKPOINT
    found = find_newest(
        Path(folder),
        nth=int(section.LATEST_CHECKPOINT_RESUME_FILE_NUM),
        skip_final=bool(section.OVERWRITE_EXISTING),
    )
    for name, why in found.skipped.items():
        goes_on = f"; going on from {found.path}" if found.path else ""
        logging.warning(f"Skipped {Path(folder, name)}: {why}{goes_on}")
    return found


def _last_test_is_left(found: Found) -> bool:
    """Whether a run was stopped between its final checkpoint and the end of the test after it.

    Each phase that ends has its line in ``metrics.json``.
    """
    lines = read_json_lines(Path(str(found.path)).with_name("metrics.json"))
    return not lines or int(lines[-1]["phase_idx"]) <= int(found.content["phase_idx"])


def _refuse_to_start_over(folder: str, found: Found) -> None:
    if found.skipped:
        damaged = "; ".join(f"{name}: {why}" for name, why in found.skipped.items())
        raise SystemExit(
            f"pirl_plugin: config.CHECKPOINT.DIR = {folder}: expected a checkpoint that loads, "
            f"found none ({damaged}); bring a good one, or remove these to start over"
        )


def _check_same_run(config: AttrDict, found: Found) -> None:
    """Refuse to go on from a checkpoint of another run.

    Raises:
        SystemExit: what differs, found and expected.
    """
    from pirl_plugin.checkpoints.initial_weights import describe_other_weights
    from pirl_plugin.checkpoints.settings import describe_other_run, epochs

    path = str(found.path)
    done, total = int(found.content["train_phase_idx"]) + 1, epochs(config)
    if found.final and total > done:
        raise SystemExit(
            f"pirl_plugin: config.OPTIMIZER.num_epochs = {total}: expected {done}, after which "
            f"{path} ended with its learning rate run down; for a run of {total} epochs give "
            f"another config.CHECKPOINT.DIR, from these weights with "
            f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={path} "
            f"config.MODEL.WEIGHTS_INIT.STATE_DICT_KEY_NAME=classy_state_dict, or rename it to "
            f"model_phase{done - 1}.torch to go on from it as it is"
        )
    other = describe_other_weights(config, found.content, path)
    if other is None:
        ended = found.final and total == done
        other = describe_other_run(config, found.content, path, ended)
    if other is not None:
        raise SystemExit(f"pirl_plugin: {other}")
    if found.final:
        _check_same_training(config, found.content, Path(path))


def _say_what_changes(config: AttrDict, path: Path) -> None:
    """Warn of settings that differ from those with which the run was trained so far."""
    differ = _changes(config, path)
    if differ:
        said = "; ".join(
            f"{_named(key)} = {now!r} (was {before!r})"
            for key, (now, before) in list(differ.items())[:_SHOWN]
        )
        more = f"; and {len(differ) - _SHOWN} more" if len(differ) > _SHOWN else ""
        logging.warning(f"{path} goes on with other settings than it was made with: {said}{more}")


def _changes(config: AttrDict, path: Path) -> Differences:
    """Settings of a command that are not those of the run that wrote a checkpoint."""
    from pirl_plugin.checkpoints.training_run import run_config
    from pirl_plugin.evaluation.tables.compare_settings import changes, settings_of
    from pirl_plugin.evaluation.tables.paper_settings.free import FREE

    saved = run_config(path)
    if saved is None:
        return {}
    free = [key for key in FREE if key != "SEED_VALUE"]
    return changes(settings_of(config.to_dict()), settings_of(saved), free)


def _named(key: str) -> str:
    return f"config.{key}" if key[0].isupper() else f"the {key}"


def _check_same_training(config: AttrDict, content: Mapping[str, Any], path: Path) -> None:
    """Refuse a command whose training is not that of the finished run in its folder.

    Raises:
        SystemExit: the first key that differs, found and expected.
    """
    from pirl_plugin.checkpoints.training_run import run_config

    if differ := _changes(config, path):
        key, (found, expected) = next(iter(differ.items()))
        raise SystemExit(
            f"pirl_plugin: {_named(key)} = {found!r}: expected {expected!r}, with which "
            f"the run in {path.parent} was made to its end; give another config.CHECKPOINT.DIR to "
            f"start a new one"
        )
    if saved := run_config(path):
        check_same_images(config, content, saved, str(path.parent))
