"""Checkpoints of the host written whole or not at all, and its link to the newest one."""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.vissl.patches.patches import patched

if TYPE_CHECKING:
    from pirl_plugin.vissl.host_module import HostModule


def save_whole(module: HostModule) -> None:
    """Never worked: checkpoints were written in place, and lost when that was cut short.

    They are written beside, flushed and renamed, for all approaches. In runs of this plugin its
    hook completes what is saved, and removes what need not stay.
    """
    in_place = module.save_checkpoint

    @functools.wraps(in_place)
    def save_checkpoint(
        checkpoint_folder: str, state: dict[str, Any], checkpoint_file: str = "checkpoint.torch"
    ) -> str:
        import torch

        from pirl_plugin.files import atomic_write
        from pirl_plugin.vissl.hooks.checkpoint import HOOKS

        if "://" in checkpoint_folder:  # not a disk: the host's path managers know how
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
    patched("checkpoints written in place")


def link_newest(module: HostModule) -> None:
    """Broke: ``checkpoint.torch`` was an absolute link, from a relative folder a dangling one.

    Moved folders lost it, and a dangling one was never replaced: ``[Errno 17] File exists``.
    """
    original = module.create_file_symlink

    @functools.wraps(original)
    def create_file_symlink(file1: str, file2: str) -> None:
        from pirl_plugin.files import link_relatively

        if "://" in file2:
            original(file1, file2)
            return
        try:
            link_relatively(Path(file1), Path(file2))
        except OSError as error:  # as in the host: some file systems have no links
            logging.info(f"Could NOT create symlink. Error: {error}")

    module.create_file_symlink = create_file_symlink
    patched("links to checkpoints")
