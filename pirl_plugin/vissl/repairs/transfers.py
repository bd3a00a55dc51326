"""Transfers of tensors: a checkpoint to the disk and to the other ranks, and batches to a GPU."""

from __future__ import annotations

import functools
import io
import logging
from pathlib import Path
from typing import Any

import torch

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


def broadcast_without_copies(module: Any) -> None:
    """Broke: ``broadcast_object`` takes 12 s for a checkpoint of 194 MB, in one process too.

    Its ``torch.ByteTensor(memoryview)`` copies byte by byte. Here a tensor shares the memory of the
    serialised object. A single process sends nothing.
    """
    original = module.broadcast_object

    @functools.wraps(original)
    def broadcast_object(obj: object, src: int = 0, use_disk: bool = True) -> object:
        if module.get_world_size() == 1:
            return obj
        if module.get_rank() != src:
            return original(obj, src, use_disk)
        buffer = io.BytesIO()
        torch.save(obj, buffer)
        # The receivers wait for the length, then for the bytes.
        content = torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)
        module.broadcast(torch.tensor([len(content)]), src=src)
        module.broadcast(content, src=src)
        return obj

    module.broadcast_object = broadcast_object


def copy_after_the_step_before(module: Any) -> None:
    """Never worked: the copy of a batch could overwrite a batch that the backward pass still reads.

    The host copies in a separate stream, which reuses memory as soon as Python frees it. With the
    patch, the stream waits for all work queued before the copy.
    """
    loader = module.DataloaderAsyncGPUWrapper
    original = loader.preload

    @functools.wraps(original)
    def preload(self: Any) -> object:
        self.stream.wait_stream(torch.cuda.current_stream())
        return original(self)

    loader.preload = preload
