"""Split a batch, join what a model makes of its parts: for gradient accumulation."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pirl_plugin.settings import MICRO_BATCHES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

    Inputs = Tensor | dict[str, Tensor]


def split(inputs: Inputs, target: Tensor, largest: int) -> list[tuple[Inputs, Tensor]]:
    """Split a batch into micro-batches as equal as can be.

    Args:
        inputs: ``(B, …)`` or, with k views of an image one after the other, ``(k·B, …)``; or a
            dictionary of such.
        target: ``(B,)``.
        largest: number of images in a micro-batch at most.

    Returns:
        ⌈B / largest⌉ pairs of inputs and target.

    Example:
        >>> patches, rows = torch.arange(10), torch.arange(5)  # 2 patches of each image
        >>> [(part.tolist(), mine.tolist()) for part, mine in split(patches, rows, 4)]
        [([0, 1, 2, 3, 4, 5], [0, 1, 2]), ([6, 7, 8, 9], [3, 4])]
    """
    count = -(-len(target) // largest)
    sizes = [len(part) for part in target.tensor_split(count)]

    def parts(views: Tensor) -> Sequence[Tensor]:
        each, left = divmod(len(views), len(target))
        if left:
            raise ValueError(
                f"an input has {len(views)} views for {len(target)} images: expected as many of "
                f"each image; set config.{MICRO_BATCHES}=1"
            )
        return views.split([each * size for size in sizes])

    if isinstance(inputs, dict):
        columns = {name: parts(views) for name, views in inputs.items()}
        pieces: list[Inputs] = [{k: v[i] for k, v in columns.items()} for i in range(count)]
    else:
        pieces = list(parts(inputs))
    return list(zip(pieces, target.split(sizes), strict=True))


def join(outputs: Sequence[Tensor | list[Tensor]]) -> Tensor | list[Tensor]:
    """A model's outputs of the micro-batches, detached, as those of the batch."""
    if isinstance(outputs[0], Tensor):
        return torch.cat([one.detach() for one in outputs if isinstance(one, Tensor)])
    return [torch.cat([part.detach() for part in head]) for head in zip(*outputs, strict=True)]


@contextmanager
def left_as_it_is(model: nn.Module) -> Iterator[None]:
    """Run forward passes without gradients and without a trace.

    The buffers, such as BatchNorm's running statistics, and the random state, such as that of
    dropout, are afterwards what they were.
    """
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    devices = {p.device.index for p in model.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng(sorted(d for d in devices if d is not None)), torch.no_grad():
        try:
            yield
        finally:
            for buffer, value in before:
                buffer.copy_(value)


class MeanLoss:
    """A loss that is a mean over the labelled images of a process, as a sum over micro-batches.

    Args:
        loss: of (output, target).
        target: ``(B,)`` of the whole batch.
        ignored: the label that it leaves out.
    """

    def __init__(
        self, loss: Callable[[Tensor | list[Tensor], Tensor], Tensor], target: Tensor, ignored: int
    ) -> None:
        self._loss, self._ignored = loss, ignored
        self._labelled = int((target != ignored).sum())

    def __call__(self, output: Tensor | list[Tensor], target: Tensor) -> Tensor:
        """This micro-batch's part of the mean, with its graph even where nothing is labelled."""
        labelled = int((target != self._ignored).sum())
        if not labelled:
            outputs = [output] if isinstance(output, Tensor) else output
            return torch.stack([0 * one.float().sum() for one in outputs]).sum()
        return self._loss(output, target) * (labelled / self._labelled)
