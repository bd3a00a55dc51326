"""The copy of batches to a GPU, ``DATA.ENABLE_ASYNC_GPU_COPY``."""

from __future__ import annotations

import functools
from typing import Any

import torch


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
