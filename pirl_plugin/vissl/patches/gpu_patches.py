"""What VISSL gets wrong, or today's torch broke, of copies to GPUs and of gradients between them.

Steps of :mod:`pirl_plugin.vissl.import_hook.table`, as those of
:mod:`pirl_plugin.vissl.patches.patches`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pirl_plugin.vissl.patches.patches import patched

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

    from pirl_plugin.vissl.host_module import HostModule


def copy_after_the_step_before(module: HostModule) -> None:
    """Never worked: the copy of a batch could overwrite one that the backward pass still read.

    With ``DATA.ENABLE_ASYNC_GPU_COPY``, its default, batches are copied in a stream of their own,
    which reuses the memory of the batch before last as soon as Python has let go of it: while the
    GPU may still be computing with it. The stream now waits for what was queued before the copy;
    the copy still overlaps the step that follows.
    """
    import torch

    loader = module.DataloaderAsyncGPUWrapper
    original = loader.preload

    @functools.wraps(original)
    def preload(self: Any) -> object:
        self.stream.wait_stream(torch.cuda.current_stream())
        return original(self)

    loader.preload = preload
    patched("batches copied over one in use")


def sync_buffers_by_hand(module: HostModule) -> None:
    """Broke: torch 1.11 split ``DistributedDataParallel._sync_params``; its buffers' part is left.

    ``DISTRIBUTED.MANUAL_GRADIENT_REDUCTION`` ended in an ``AttributeError``.
    """
    from torch.nn.parallel import DistributedDataParallel

    if hasattr(DistributedDataParallel, "_sync_params"):
        return

    def manual_sync_params(model: DistributedDataParallel) -> None:
        if model.broadcast_buffers and model.modules_buffers:
            model._sync_buffers()

    module.manual_sync_params = manual_sync_params
    patched("gradients reduced by hand")
