"""Move tensors: checkpoints to disk and to ranks, and batches to a GPU."""

from __future__ import annotations

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


def load_on_each_rank(
    checkpoint_path: str, device: torch.device, *, original: object
) -> dict[str, Any] | None:
    """Broke: ``load_and_broadcast_checkpoint`` takes 12 s for 194 MB, even in one process.

    ``broadcast_object`` copies byte by byte. All ranks find the file by its name beforehand, so
    each one reads it.
    """
    from classy_vision.generic.util import load_checkpoint

    checkpoint: dict[str, Any] | None = load_checkpoint(checkpoint_path, device)
    return checkpoint


def copy_after_last_step(loader: Any, *, original: Callable[..., Any]) -> None:
    """Never worked: copying a batch could overwrite one that the backward pass still reads.

    VISSL copies in a separate stream, which reuses memory as soon as Python frees it. Here, the
    stream waits for all work queued before the copy.
    """
    loader.stream.wait_stream(torch.cuda.current_stream())
    original(loader)
