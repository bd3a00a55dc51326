"""The host's functions that save and resume, wrapped: whole files, and the newest that loads."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.checkpoints.training_run import final_checkpoint, section_of
from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import atomic_write, link_relatively, read_json_lines
from pirl_plugin.vissl.sections import RECORD

if TYPE_CHECKING:
    from vissl.config import AttrDict

    from pirl_plugin.vissl.resume.folder import ResumePoint


def save_whole(module: Any) -> None:
    """Never worked: an interruption leaves half a checkpoint.

    ``CheckpointWriter`` calls Classy Vision's ``save_checkpoint``, which writes in place.
    Now a checkpoint is written to another file, flushed and renamed, for all approaches.
    """
    in_place = module.save_checkpoint

    @functools.wraps(in_place)
    def save_checkpoint(
        checkpoint_folder: str, state: dict[str, Any], checkpoint_file: str = "checkpoint.torch"
    ) -> str:
        import torch

        if "://" in checkpoint_folder:  # not a disk: the host's path managers write it
            return str(in_place(checkpoint_folder, state, checkpoint_file))
        with atomic_write(Path(checkpoint_folder, checkpoint_file)) as file:
            torch.save(state, file)
        return f"{checkpoint_folder}/{checkpoint_file}"

    module.save_checkpoint = save_checkpoint


def link_newest(module: Any) -> None:
    """Never worked: ``checkpoint.torch`` points nowhere after its folder has moved.

    ``create_file_symlink`` of ``vissl.utils.io`` makes an absolute link. With a relative
    ``CHECKPOINT.DIR``, the link dangles from the start, and is never replaced: ``exists`` is false
    for it, so ``symlink`` fails with ``[Errno 17] File exists``.
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
    """Never worked: a damaged newest checkpoint ends every restart.

    ``is_training_finished`` and ``get_resume_checkpoint`` look at the names of files only. A final
    file of 0 bytes even ends a run as finished.
    """
    host_finished = module.is_training_finished
    host_checkpoint = module.get_resume_checkpoint

    @functools.wraps(host_finished)
    def is_training_finished(cfg: AttrDict, checkpoint_folder: str) -> bool:
        if not _resumes(cfg):
            return bool(host_finished(cfg, checkpoint_folder))
        # The host's link is to the newest checkpoint; we need the newest that loads.
        cfg.CHECKPOINT.USE_SYMLINK_CHECKPOINT_FOR_RESUME = False
        if final_checkpoint(Path(checkpoint_folder)) is None:
            return False
        point = _resume_point(cfg, checkpoint_folder)
        if not point.is_final or (cfg.TEST_MODEL and _last_test_is_left(point)):
            return False
        logging.warning(
            f"The run in {checkpoint_folder} is finished, with {point.path}; for another "
            f"run, give another config.CHECKPOINT.DIR"
        )
        return True

    @functools.wraps(host_checkpoint)
    def get_resume_checkpoint(cfg: AttrDict, checkpoint_folder: str) -> str | None:
        if not _resumes(cfg):
            path: str | None = host_checkpoint(cfg, checkpoint_folder)
            return path
        point = _resume_point(cfg, checkpoint_folder)
        if point.path is None:
            return None
        logging.info(f"Resume from file: {point.path}")
        return str(point.path)

    module.is_training_finished = is_training_finished
    module.get_resume_checkpoint = get_resume_checkpoint


def _resumes(config: AttrDict) -> bool:
    return RECORD in config and bool(config.CHECKPOINT.AUTO_RESUME)


def _resume_point(config: AttrDict, folder: str) -> ResumePoint:
    """Find the checkpoint to resume from.

    Raises:
        Refused: it belongs to another run, or no checkpoint in the folder loads.
    """
    from pirl_plugin.vissl.resume.folder import find_newest
    from pirl_plugin.vissl.resume.record import refuse_another_run

    point = find_newest(
        Path(folder),
        nth=int(config.CHECKPOINT.LATEST_CHECKPOINT_RESUME_FILE_NUM),
        skip_final=bool(config.CHECKPOINT.OVERWRITE_EXISTING),
    )
    for name, fault in point.skipped.items():
        logging.warning(f"Skipped {Path(folder, name)}: {fault}")
    if point.path is not None:
        refuse_another_run(config, section_of(point.content), point.path)
    elif point.skipped:
        names = ", ".join(point.skipped)
        raise Refused(
            f"config.CHECKPOINT.DIR = {folder}: expected a checkpoint that loads, found none among "
            f"{names}; restore a good one, or remove these to start again"
        )
    return point


def _last_test_is_left(point: ResumePoint) -> bool:
    """Return whether a run was stopped between its final checkpoint and the end of its test.

    Each finished phase has its line in ``metrics.json``.
    """
    lines = read_json_lines(Path(str(point.path)).with_name("metrics.json"))
    return not lines or int(lines[-1]["phase_idx"]) <= int(point.content["phase_idx"])
