"""Normalisation of batches, memory format, precision, compilation and micro-batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pirl_plugin.images.names import PREDICT_JIGSAW
from pirl_plugin.views.pixels import normalize_images
from pirl_plugin.vissl.sections import InputSettings, num_micro_batches, read_section
from pirl_plugin.vissl.task import QuietHook

if TYPE_CHECKING:
    from vissl.config import AttrDict

    from pirl_plugin.vissl.task import Task

    Inputs = Tensor | dict[str, Tensor]


class PIRLInputHook(QuietHook):
    """Replaces the model's ``forward``: batches are uint8, and the host has no hook before it.

    Args:
        settings: settings of the section ``HOOKS.PIRL_INPUT``.
        micro_batch: largest number of images in a micro-batch; None: the batch is not split.
        views: number of views of an image in a batch that is a single tensor.
    """

    def __init__(
        self,
        settings: InputSettings | None = None,
        micro_batch: int | None = None,
        views: int = 1,
    ) -> None:
        super().__init__()
        self.settings = settings or InputSettings()
        self.micro_batch = micro_batch
        self.views = views
        self._format = torch.contiguous_format
        if self.settings.channels_last:
            self._format = torch.channels_last

    @classmethod
    def from_config(cls, config: AttrDict) -> PIRLInputHook:
        """Build the hook from the host's configuration."""
        data = config.DATA.TRAIN
        parts = num_micro_batches(config)
        transforms = [transform.get("name") for transform in data.TRANSFORMS or []]
        return cls(
            read_section(InputSettings, config, "HOOKS.PIRL_INPUT"),
            micro_batch=math.ceil(data.BATCHSIZE_PER_REPLICA / parts) if parts > 1 else None,
            views=9 if PREDICT_JIGSAW in transforms else 1,
        )

    def on_start(self, task: Task) -> None:
        """Replace ``forward`` of the model inside DistributedDataParallel."""
        model: Any = task.base_model
        forward = model.forward

        def prepared(batch: Inputs) -> Any:
            return forward(self.prepare(batch))

        run: Callable[[Inputs], Any] = prepared
        if self.settings.autocast == "bfloat16":
            run = torch.autocast(task.device.type, torch.bfloat16)(run)
        if self.micro_batch is not None:
            run = in_micro_batches(run, model, self.micro_batch, self.views)
        model.forward = run

    def prepare_model(self, model: nn.Module) -> None:
        """Set the weights' memory format, and compile the trunk if configured; in place.

        Call it before DistributedDataParallel allocates its gradient buckets.
        """
        model.to(memory_format=self._format)
        if self.settings.compile:
            # Images and patches have two shapes; dynamic shapes would be slower for both.
            getattr(model, "trunk", model).compile(dynamic=False)

    def prepare(self, batch: object) -> Any:
        """Return a tensor or dictionary with uint8 ``(B, 3, H, W)`` normalised to float32."""
        if isinstance(batch, dict):
            return {key: self.prepare(value) for key, value in batch.items()}
        if not isinstance(batch, Tensor) or batch.dtype != torch.uint8:
            return batch
        return normalize_images(
            batch, tuple(self.settings.mean), tuple(self.settings.std), self._format
        )


def in_micro_batches(
    forward: Callable[[Inputs], list[Tensor]], model: nn.Module, largest: int, views: int = 1
) -> Callable[[Inputs], list[Tensor]]:
    """Return a ``forward`` with the memory of one micro-batch, for ``TRAINER.PIRL_MICRO_BATCHES``.

    The loss gets the outputs of the whole batch. The backward pass computes the activations of each
    micro-batch again (Chen et al. 2016, arXiv 1604.06174), which costs one more forward pass. The
    gradient equals the whole batch's, except for BatchNorm: it sees one micro-batch at a time.

    Args:
        forward: maps inputs to one output ``(B, …)`` for each head.
        model: the module of ``forward``; in evaluation mode, batches are not split.
        largest: largest number of images in a micro-batch.
        views: see :func:`split`.
    """

    def keep_buffers_in_second_pass() -> tuple[Any, Any]:
        """Return the contexts of the first pass and of the pass in ``backward``."""
        return nullcontext(), _buffers_kept(model)

    def run(batch: Inputs) -> list[Tensor]:
        if not model.training:
            return forward(batch)
        outputs: Any = []  # of each micro-batch: a list with the output of each head
        for part in split(batch, largest, views):
            outputs.append(
                checkpoint(
                    forward,
                    part,
                    use_reentrant=False,
                    context_fn=keep_buffers_in_second_pass,
                )
            )
        return [torch.cat(head) for head in zip(*outputs, strict=True)]

    return run


def split(batch: Inputs, largest: int, views: int = 1) -> list[Inputs]:
    """Split a batch into ⌈B / largest⌉ micro-batches of nearly equal size.

    Args:
        batch: ``(views·B, …)`` with consecutive views of an image; or a dictionary of tensors with
            any number of views, one of them with a single view.
        largest: largest number of images in a micro-batch.
        views: number of views of an image, if the batch is a tensor.

    Example:
        >>> patches = torch.arange(10)  # 2 of each image
        >>> [part.tolist() for part in split(patches, largest=4, views=2)]
        [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]
    """
    if isinstance(batch, Tensor):
        sizes = _even_sizes(len(batch) // views, largest)
        return list(_parts(batch, sizes))
    sizes = _even_sizes(min(map(len, batch.values())), largest)
    parts_of_inputs = [_parts(tensor, sizes) for tensor in batch.values()]
    return [dict(zip(batch, parts, strict=True)) for parts in zip(*parts_of_inputs, strict=True)]


def _even_sizes(images: int, largest: int) -> list[int]:
    """Return the numbers of images in ⌈images / largest⌉ parts; they differ by at most 1."""
    num_parts = math.ceil(images / largest)
    return [len(part) for part in torch.arange(images).tensor_split(num_parts)]


def _parts(tensor: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
    """Split a tensor with a number of rows for each image into parts of ``sizes`` images."""
    rows_per_image = len(tensor) // sum(sizes)
    return tensor.split([rows_per_image * size for size in sizes])


@contextmanager
def _buffers_kept(model: nn.Module) -> Iterator[None]:
    """Restore the buffers of BatchNorm at the end: the first pass has already updated them."""
    buffers = list(model.buffers())
    values = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, values, strict=True):
                buffer.copy_(value)
