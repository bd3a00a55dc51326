"""Patches of VISSL's transfer of tensors to other processes and to GPUs."""

from __future__ import annotations

import functools
from typing import Any

import torch


def broadcast_without_copies(module: Any) -> None:
    """Broke: ``torch.ByteTensor(memoryview)`` copies a checkpoint byte by byte, 12 s for 194 MB.

    Its module gets a torch whose ``ByteTensor`` shares the memory. A single process sends nothing.
    """

    class Torch:
        """torch with another ``ByteTensor``."""

        ByteTensor = staticmethod(functools.partial(torch.frombuffer, dtype=torch.uint8))

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    original, module.torch = module.broadcast_object, Torch()

    @functools.wraps(original)
    def broadcast_object(obj: object, *args: Any, **kwargs: Any) -> object:
        return original(obj, *args, **kwargs) if module.get_world_size() > 1 else obj

    module.broadcast_object = broadcast_object


def copy_after_the_step_before(module: Any) -> None:
    """Never worked: the copy of a batch could overwrite a batch that the backward pass still reads.

    ``DATA.ENABLE_ASYNC_GPU_COPY`` copies in a separate stream, which reuses memory as soon as
    Python frees it. With the patch, the stream waits for all work queued before the copy.
    """
    loader = module.DataloaderAsyncGPUWrapper
    original = loader.preload

    @functools.wraps(original)
    def preload(self: Any) -> object:
        self.stream.wait_stream(torch.cuda.current_stream())
        return original(self)

    loader.preload = preload
