"""Helpers for any trunk: input channels, layer features, an untrained copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from inspect import signature
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import adaptive_avg_pool2d, avg_pool2d

from pirl_plugin.models.network_config import RESNET
from pirl_plugin.models.resnet import LAST, WideResNet
from pirl_plugin.models.timm_trunk import TimmTrunk
from pirl_plugin.system.console import warn
from pirl_plugin.system.failures import Refused, check_name, sentence
from pirl_plugin.system.text import counted

AnyTrunk = WideResNet | TimmTrunk

# timm's options for images of other sizes, in the networks that have them.
_ANY_SIZE = ("strict_img_size=False", "dynamic_img_size=True")
_GRID_DIMENSIONS = 9216  # layer feature size: "about 9,000" (Sec. 4.2, App. C)


def first_convolution(network: nn.Module) -> tuple[str, nn.Conv2d] | None:
    """Return name and layer of the convolution that reads the images; None if there is none.

    Grouped convolutions are skipped, because :func:`adapt_channels` cannot change their channels.
    """
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d) and module.groups == 1:
            return name, module
    return None


@torch.no_grad()
def adapt_channels(network: nn.Module, channels: int) -> None:
    """Change a network's number of input channels in place, and log the change.

    As in timm, the first convolution's filters are repeated or cut, and scaled so that their
    outputs keep their size; for one channel they are summed. A network that already has this number
    of channels, or has no convolution, is left unchanged.
    """
    first = first_convolution(network)
    if first is None or first[1].in_channels == channels:
        return
    name, layer = first
    old_channels = layer.in_channels
    # The same parameter, which an optimizer may already have.
    layer.weight.data = adapt_filters(layer.weight, channels)
    layer.in_channels = channels
    change = "summed" if channels == 1 else "repeated and scaled"
    warn(
        f"The trunk's first convolution, {name}, now reads {counted(channels, 'channel')} instead "
        f"of {old_channels}: its filters were {change}."
    )


def adapt_filters(weight: Tensor, channels: int) -> Tensor:
    """Return a convolution's filters for another number of channels; see :func:`adapt_channels`."""
    if channels == 1:
        return weight.sum(1, keepdim=True)
    old_channels = weight.shape[1]
    return weight[:, torch.arange(channels) % old_channels] * (old_channels / channels)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put a network in evaluation mode for a block, then restore each module's mode.

    A frozen layer may be in evaluation mode while its network is in training mode.
    """
    in_training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        yield
    finally:
        for module in in_training:
            module.training = True


def untrained(trunk: AnyTrunk) -> AnyTrunk:
    """Build a randomly initialized copy of a trunk, in evaluation mode.

    The weights are always the same, and the global random number generator is unaffected.
    """
    config = trunk.network_config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        copy = build_trunk(config.architecture, config.options)
    copy.network_config = config
    return copy.eval()


def build_trunk(architecture: str, options: Mapping[str, Any]) -> AnyTrunk:
    """Build a trunk from its name and options; see :class:`NetworkConfig`."""
    if architecture == RESNET:
        return WideResNet(**options)
    return TimmTrunk(architecture, options)


def body_of(trunk: AnyTrunk) -> nn.Module:
    """Return the network whose tensors have torchvision's or timm's names."""
    return trunk.net if isinstance(trunk, TimmTrunk) else trunk


def pooled_features(output: object) -> Tensor:
    """Return the features in any network's output.

    Args:
        output: a tensor ``(B, …)``, or a list, tuple or dictionary with one such tensor, or with
            one named ``pooler_output``, as in transformers.

    Raises:
        Refused: the output is something else.

    Example:
        >>> pooled_features({"loss": None, "pooler_output": torch.zeros(2, 5)}).shape
        torch.Size([2, 5])
    """
    features = output
    if isinstance(output, Mapping):
        features = output.get("pooler_output")
        output = [*output.values()]
    if isinstance(output, (list, tuple)) and len(output) == 1:
        (features,) = output
    if not isinstance(features, Tensor):
        raise Refused(
            f"The trunk returned a {type(output).__name__} without pooled features: expected a "
            f"tensor (B, D). Wrap the trunk in a module that returns this tensor."
        )
    return features


def float_dtype(trunk: nn.Module) -> torch.dtype:
    """Return the dtype of a trunk's weights, which its inputs must have."""
    dtypes = (parameter.dtype for parameter in trunk.parameters())
    return next((dtype for dtype in dtypes if dtype.is_floating_point), torch.float32)


@torch.no_grad()
def feature_width(trunk: nn.Module, views: Mapping[str, Tensor]) -> int:
    """Run each view through a trunk once, and return its number of features.

    The trunk runs in the mode that it is in, because some networks return something else in
    training. Buffers, such as BatchNorm's statistics, and random numbers stay as they are.

    Args:
        trunk: the network.
        views: name → normalized images ``(B, C, h, w)``, at least two.

    Raises:
        Refused: the trunk cannot process a view, or does not return one vector per image.
    """
    width = 0
    for name, view in views.items():
        try:
            features = pooled_features(_try(trunk, view))
        except Refused:
            raise
        except Exception as error:  # networks raise errors of any type
            raise Refused(_describe_misfit(trunk, name, view, error)) from error
        width = features.shape[1]
        if features.numel() != len(view) * width:  # other sizes would give other widths
            raise Refused(
                f"The trunk returned features of shape {tuple(features.shape)}: expected (B, D) or "
                f"(B, D, 1, 1). Add global average pooling to the trunk."
            )
    return width


def _try(trunk: nn.Module, images: Tensor) -> object:
    """Run a network on copies of its buffers, with its own random numbers."""
    buffers = {name: buffer.clone() for name, buffer in trunk.named_buffers()}
    with torch.random.fork_rng([images.device] if images.is_cuda else []):
        return functional_call(trunk, buffers, images)


def _describe_misfit(trunk: nn.Module, name: str, view: Tensor, error: Exception) -> str:
    """Describe a view that a trunk cannot process, and what the trunk needs."""
    side = view.shape[-1]
    problem = f"The trunk cannot process {name} of {side} px ({sentence(error).rstrip('.')})."
    fitting = list(islice(_fitting_sizes(trunk, view), 2))
    if len(fitting) == 2:
        smallest, next_size = fitting
        step = next_size - smallest
        needs = f"multiples of {step}" if step > 2 else f"at least {smallest}"
        argument = "patch_size" if name == "patches" else "image_size"
        return f"{problem} It needs {needs} px: pass {argument}={smallest} to the views."
    for option in _ANY_SIZE:
        if option.partition("=")[0] in signature(type(trunk)).parameters:
            timms: Any = trunk
            return (
                f"{problem} Create timm's network with {option}, and make all views multiples of "
                f"{timms.patch_embed.patch_size[0]} px."
            )
    return f"{problem} Choose a network that accepts images of other sizes."


def _fitting_sizes(trunk: nn.Module, view: Tensor) -> Iterator[int]:
    """Yield even sizes above a view's that a trunk can process."""
    side = view.shape[-1]
    for size in range(side + 2 - side % 2, 2 * side + 33, 2):
        with suppress(Exception):
            _try(trunk, view.new_zeros(*view.shape[:2], size, size))
            yield size


def layer_features(trunk: AnyTrunk, images: Tensor, names: Sequence[str]) -> list[Tensor]:
    """Compute features at several layers in one pass.

    Args:
        trunk: the network.
        images: normalized, float ``(B, C, H, W)``.
        names: layer names, from the trunk's ``layers``.

    Returns:
        ``(B, D)`` for each layer; D is about 9,216, or the trunk's width for ``last``.

    Raises:
        ValueError: the trunk lacks a layer.
    """
    for name in names:
        check_name("layer", name, trunk.layers)
    features = trunk.named_features(images, names)
    return [
        output if name == LAST else on_grid(output)
        for name, output in zip(names, features, strict=True)
    ]


def on_grid(features: Tensor) -> Tensor:
    """Pool a layer to a grid with about 9,000 dimensions in total, as in App. C.

    Args:
        features: float ``(B, C, H, W)``.

    Returns:
        ``(B, C·G²)``; the grid's side G is at most H and W.

    Example:
        >>> [on_grid(torch.zeros(1, c, 14, 14)).shape[1] // c for c in (64, 256, 1024, 2048)]
        [144, 36, 9, 4]
    """
    channels, height, width = features.shape[1:]
    side = round((_GRID_DIMENSIONS / channels) ** 0.5)
    side = max(1, min(side, height, width))
    return adaptive_avg_pool2d(features, side).flatten(1)


class GridAvgPool2d(nn.Module):
    """Average pooling with the paper's windows if they give ``grid``, else adaptive pooling.

    The windows in App. C fit the layers for 224-px images. For other image sizes they give a
    different grid, or none. Adaptive pooling then gives the same grid, so the classifier's input
    size stays the same.

    Args:
        grid: output height and width.
        kernel_size: side of the windows.
        stride: distance between windows.
        padding: zeros on each side, which count in the averages.

    Example:
        >>> pool = GridAvgPool2d([2, 2], kernel_size=6, stride=1)  # res5 of ResNet-50
        >>> pool(torch.zeros(1, 2048, 7, 7)).shape, pool(torch.zeros(1, 2048, 1, 1)).shape
        (torch.Size([1, 2048, 2, 2]), torch.Size([1, 2048, 2, 2]))
    """

    def __init__(
        self, grid: list[int], kernel_size: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__()
        self.grid = (grid[0], grid[1])
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding

    def forward(self, features: Tensor) -> Tensor:
        """Pool float ``(B, C, H, W)`` to ``(B, C, *grid)``."""
        sides = features.shape[2:]
        windows = [
            (side + 2 * self.padding - self.kernel_size) // self.stride + 1 for side in sides
        ]
        if tuple(windows) == self.grid:
            return avg_pool2d(features, self.kernel_size, self.stride, self.padding)
        return adaptive_avg_pool2d(features, self.grid)
