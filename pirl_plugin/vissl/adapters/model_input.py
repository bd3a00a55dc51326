"""Prepare model inputs: normalization, memory format, precision, micro-batches.

Batches are uint8, and VISSL has no hook before the model, so ``forward`` is replaced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pirl_plugin.images.names import PREDICT_JIGSAW, TRANSFORMS
from pirl_plugin.models.preprocessing import normalize_images
from pirl_plugin.vissl.sections import InputSettings, num_micro_batches, read_section

Inputs = Tensor | dict[str, Tensor]


def prepare_model(
    model: nn.Module,
    config: Mapping[str, Any],
    device: torch.device,
    dtype: torch.dtype = torch.uint8,
) -> None:
    """Replace the model's ``forward`` and set the weights' memory format, in place.

    Models in VISSL's benchmarks are left alone, because their transforms already normalize the
    images. Call this before DistributedDataParallel allocates its gradient buckets.

    Args:
        model: VISSL's model.
        config: VISSL's complete configuration; ``HOOKS.PIRL_INPUT`` has the settings.
        device: the device on which the model will run.
        dtype: type of the images from this plugin's transforms.
    """
    num_parts = num_micro_batches(config)
    has_our_images = config["LOSS"]["name"] == "pirl_loss" or "PIRL_INPUT" in config["HOOKS"]
    if not has_our_images and num_parts == 1:
        return
    settings = read_section(InputSettings, config, "HOOKS.PIRL_INPUT")
    data = config["DATA"]
    transforms = data["TRAIN"]["TRANSFORMS"]
    first_transform = transforms[0]["name"] if transforms else ""
    if first_transform not in TRANSFORMS:
        dtype = torch.uint8  # VISSL's give RGB
    memory_format = torch.channels_last if settings.channels_last else torch.contiguous_format
    model.to(memory_format=memory_format)
    if settings.compile:
        # Images and patches have different shapes; dynamic shapes would be slower for both.
        getattr(model, "trunk", model).compile(dynamic=False)
    forward = model.forward

    def prepared(batch: Inputs) -> Any:
        return forward(prepare_batch(batch, settings, memory_format, dtype))

    run: Callable[[Inputs], Any] = prepared
    if settings.autocast == "bfloat16":
        run = torch.autocast(device.type, torch.bfloat16)(run)
    if num_parts > 1:
        largest = math.ceil(data["TRAIN"]["BATCHSIZE_PER_REPLICA"] / num_parts)
        views = 9 if first_transform == PREDICT_JIGSAW else 1
        run = in_micro_batches(run, model, largest, views)
    model.forward = run


def prepare_batch(
    batch: object,
    settings: InputSettings,
    memory_format: torch.memory_format,
    dtype: torch.dtype = torch.uint8,
) -> Any:
    """Return a tensor or dictionary, with images ``(B, C, H, W)`` normalized to float32.

    Args:
        batch: a tensor, or a dictionary of tensors; those with a different dtype are unchanged.
        settings: mean and standard deviation.
        memory_format: memory format of the result.
        dtype: type of the images.
    """
    if isinstance(batch, dict):
        prepared = {}
        for key, inputs in batch.items():
            prepared[key] = prepare_batch(inputs, settings, memory_format, dtype)
        return prepared
    if not isinstance(batch, Tensor) or batch.dtype != dtype:
        return batch
    return normalize_images(batch, settings.mean, settings.std, memory_format)


def in_micro_batches(
    forward: Callable[[Inputs], list[Tensor]], model: nn.Module, largest: int, views: int = 1
) -> Callable[[Inputs], list[Tensor]]:
    """Return a ``forward`` that uses the memory for one micro-batch (``PIRL_MICRO_BATCHES``).

    The loss gets the outputs for the complete batch. The backward pass recomputes the activations
    for each micro-batch (Chen et al. 2016, arXiv 1604.06174), at the cost of one more forward pass.
    The gradient equals the one for the complete batch, except for BatchNorm, which sees one
    micro-batch at a time.

    Args:
        forward: maps inputs to one output ``(B, …)`` per head.
        model: the module that ``forward`` belongs to; batches are not split in evaluation mode.
        largest: maximum number of images in a micro-batch.
        views: see :func:`split`.
    """

    def keep_buffers_in_second_pass() -> tuple[Any, Any]:
        """Return the contexts for the first pass and the one in ``backward``."""
        return nullcontext(), _buffers_kept(model)

    def run(batch: Inputs) -> list[Tensor]:
        if not model.training:
            return forward(batch)
        outputs: Any = []  # per micro-batch, a list with one output per head
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
        batch: ``(views·B, …)``, with an image's views next to each other; or a dictionary of
            tensors with any number of views, one of them with a single view.
        largest: maximum number of images in a micro-batch.
        views: number of views per image, if the batch is a tensor.

    Example:
        >>> patches = torch.arange(10)  # 2 per image
        >>> [part.tolist() for part in split(patches, largest=4, views=2)]
        [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]
    """
    if isinstance(batch, Tensor):
        return list(_parts(batch, len(batch) // views, largest))
    num_images = min(map(len, batch.values()))
    parts_of_inputs = [_parts(tensor, num_images, largest) for tensor in batch.values()]
    return [dict(zip(batch, parts, strict=True)) for parts in zip(*parts_of_inputs, strict=True)]


def _parts(tensor: Tensor, num_images: int, largest: int) -> list[Tensor]:
    """Split a tensor that has equally many rows per image; part sizes differ by at most 1 image."""
    by_image = tensor.unflatten(0, (num_images, -1))
    parts = by_image.tensor_split(math.ceil(num_images / largest))
    return [part.flatten(0, 1) for part in parts]


@contextmanager
def _buffers_kept(model: nn.Module) -> Iterator[None]:
    """Restore BatchNorm's buffers at the end, because the first pass has updated them."""
    buffers = list(model.buffers())
    values = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, values, strict=True):
                buffer.copy_(value)
