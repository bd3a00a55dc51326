"""Move tensors: checkpoints to disk and to other ranks, and batches to a GPU."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pirl_plugin.system.files import atomic_write, link_relatively


def save_atomically(
    checkpoint_folder: str,
    state: dict[str, Any],
    checkpoint_file: str = "checkpoint.torch",
    *,
    original: Callable[..., Any],
) -> str:
    """Never worked: an interruption leaves half a checkpoint.

    ``CheckpointWriter`` calls Classy Vision's ``save_checkpoint``, which writes in place. Here a
    checkpoint is written to another file, flushed and renamed, for all approaches.
    """
    if "://" in checkpoint_folder:  # VISSL's path managers write it
        return str(original(checkpoint_folder, state, checkpoint_file))
    with atomic_write(Path(checkpoint_folder, checkpoint_file)) as file:
        torch.save(state, file)
    return f"{checkpoint_folder}/{checkpoint_file}"


def link_newest(file1: str, file2: str, *, original: Callable[..., Any]) -> None:
    """Never worked: ``checkpoint.torch`` points nowhere after its folder has moved.

    ``create_file_symlink`` in ``vissl.utils.io`` makes an absolute link. With a relative
    ``CHECKPOINT.DIR``, the link dangles from the start and is never replaced: ``exists`` is false
    for it, so ``symlink`` fails with ``[Errno 17] File exists``.
    """
    if "://" in file2:
        original(file1, file2)
        return
    link_checkpoint(Path(file1))


def link_checkpoint(checkpoint: Path) -> None:
    """Link ``checkpoint.torch`` to a checkpoint beside it; if that fails, remove the link and warn.

    A remaining link would point to an older checkpoint.

    Raises:
        OSError: the old link cannot be removed.
    """
    link = checkpoint.with_name("checkpoint.torch")
    try:
        link_relatively(checkpoint, link)
    except OSError as error:  # a quota, or a file system without links
        link.unlink(missing_ok=True)
        logging.warning(f"{link} was not written ({error.strerror}). Use {checkpoint} instead.")


def broadcast_without_copies(
    obj: object, src: int = 0, use_disk: bool = True, *, original: Callable[..., Any]
) -> object:
    """Broke: ``broadcast_object`` takes 12 s for a 194-MB checkpoint, even in one process.

    ``torch.ByteTensor(memoryview)`` copies byte by byte. Here, a tensor shares memory with the
    serialized object, and a single process sends nothing.
    """
    from classy_vision.generic import distributed_util as host

    if host.get_world_size() == 1:
        return obj
    if host.get_rank() != src:
        return original(obj, src, use_disk)
    buffer = io.BytesIO()
    torch.save(obj, buffer)
    # The receivers wait for the length, then for the bytes.
    content = torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)
    host.broadcast(torch.tensor([len(content)]), src=src)
    host.broadcast(content, src=src)
    return obj


def copy_after_last_step(loader: Any, *, original: Callable[..., Any]) -> None:
    """Never worked: copying a batch could overwrite one that the backward pass still reads.

    VISSL copies in a separate stream, which reuses memory as soon as Python frees it. Here, the
    stream waits for all work queued before the copy.
    """
    loader.stream.wait_stream(torch.cuda.current_stream())
    original(loader)
