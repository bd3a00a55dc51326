"""What VISSL gets wrong, or torch broke, of tensors sent to other processes and to GPUs."""

from __future__ import annotations

import functools
from typing import Any


def broadcast_without_copies(module: Any) -> None:
    """Broke: ``torch.ByteTensor(memoryview)`` copies a checkpoint byte by byte, 12 s for 194 MB.

    Its module is given a torch whose ``ByteTensor`` shares the memory. One process sends nothing.
    """
    import torch

    class Torch:
        """torch, with another way from a buffer to a tensor."""

        ByteTensor = staticmethod(functools.partial(torch.frombuffer, dtype=torch.uint8))

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    original, module.torch = module.broadcast_object, Torch()

    @functools.wraps(original)
    def broadcast_object(obj: object, *args: Any, **kwargs: Any) -> object:
        return original(obj, *args, **kwargs) if module.get_world_size() > 1 else obj

    module.broadcast_object = broadcast_object


def copy_after_the_step_before(module: Any) -> None:
    """Never worked: the copy of a batch could overwrite one that the backward pass still read.

    ``DATA.ENABLE_ASYNC_GPU_COPY`` copies in a stream of its own, which reuses memory once Python
    has let go of it. The stream now waits for what was queued before the copy.
    """
    import torch

    loader = module.DataloaderAsyncGPUWrapper
    original = loader.preload

    @functools.wraps(original)
    def preload(self: Any) -> object:
        self.stream.wait_stream(torch.cuda.current_stream())
        return original(self)

    loader.preload = preload
