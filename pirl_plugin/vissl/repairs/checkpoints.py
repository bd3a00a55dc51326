"""The host's writing of checkpoints: whole files, and a link that stays valid."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any

from pirl_plugin.system.files import atomic_write, link_relatively


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
