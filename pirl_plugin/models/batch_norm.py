"""BatchNorm's statistics of one kind of input."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from collections.abc import Iterable

_Network = TypeVar("_Network", bound=nn.Module)


def with_statistics_of(network: _Network, batches: Iterable[Tensor]) -> _Network:
    """A copy whose BatchNorm layers have the statistics of the given inputs.

    In pre-training, images and patches go through the trunk one after the other, each normalised
    by its own batch. The running statistics, which a network in evaluation mode uses, become an
    average over both kinds, and fit neither.

    Args:
        network: in evaluation mode; stays as it is. ``network(batch)`` is called.
        batches: float ``(B, 3, H, W)``, B of 2 or more.

    Returns:
        The copy, in evaluation mode: each running mean and variance is the average of those of the
        batches, all layers before it normalising by the batch. Without BatchNorm, an equal copy.

    Raises:
        ValueError: there is no batch.

    Example:
        >>> layer = nn.BatchNorm2d(1, affine=False).eval()
        >>> own = with_statistics_of(layer, [torch.tensor([3.0, 5.0]).view(2, 1, 1, 1)])
        >>> own.running_mean, layer.running_mean
        (tensor([4.]), tensor([0.]))
    """
    network = copy.deepcopy(network)
    layers = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the mean over all batches, each counting the same
        layer.train()
    count = 0
    with torch.no_grad():
        for batch in batches:
            network(batch)
            count += 1
    if not count:
        raise ValueError("no batch of inputs: expected at least one batch; give some")
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
        layer.eval()
    return network
