"""What is asked of a trunk of any kind: its features' width, its words, its layers, a new one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, avg_pool2d

from pirl_plugin.models.resnet import LAST as LAST
from pirl_plugin.models.resnet import ResNetTrunk, feature_width, read_section
from pirl_plugin.models.timm_trunk import (
    TimmTrunk,
    create_network,
    network_width,
    read_timm_section,
)
from pirl_plugin.system.failures import check_name

AnyTrunk = ResNetTrunk | TimmTrunk

_GRID_DIMENSIONS = 9216  # of the features of a layer: "about 9,000" (Sec. 4.2, App. C)


def trunk_width(trunk: Mapping[str, Any]) -> int | None:
    """Return the width of the pooled features of a ``MODEL.TRUNK`` section.

    Args:
        trunk: a mapping with ``NAME`` and the section of this trunk.

    Returns:
        The width; None for an unknown trunk.

    Raises:
        ValueError: the section has a wrong key, or timm is not installed or lacks the network.

    Example:
        >>> trunk_width({"NAME": "pirl_resnet", "PIRL_RESNET": {"DEPTH": 10}})
        512
    """
    name = trunk["NAME"]
    if name == "resnet":
        return int(2048 * trunk["RESNETS"]["WIDTH_MULTIPLIER"])  # VISSL's begin with ResNet-50
    if name == "pirl_resnet":
        arguments = read_section(trunk.get("PIRL_RESNET") or {})
        return feature_width(arguments["depth"], arguments["width"])
    if name == "pirl_timm":
        # timm knows the width only of a network; on "meta" it has no memory.
        with torch.device("meta"):
            return network_width(create_network(*read_timm_section(trunk.get("PIRL_TIMM") or {})))
    if name == "pirl_ensemble":
        section = trunk["PIRL_ENSEMBLE"]
        width = trunk_width({**trunk, "NAME": section["MEMBER"]})
        return None if width is None else width * len(section["PARAMS_FILES"])
    return None


def describe_network(trunk: AnyTrunk) -> str:
    """Describe a network, with what its file may not tell: the strides of its stem, its pooling.

    Example:
        >>> describe_network(ResNetTrunk(10, 0.5, small_stem=True))
        'ResNet-10 of width 0.5, 3×3 stem: first layer 3×3, stride 1; avg pooling; 256 features'
    """
    # The stem: a file of weights does not say its strides, or whether it pools.
    first: nn.Conv2d | None = None
    pooled = False
    for name, layer in trunk.named_modules():
        if first is None and isinstance(layer, nn.Conv2d):
            first = layer
        if isinstance(layer, nn.MaxPool2d) and name.endswith("maxpool"):
            pooled = True
    parts = []
    if first is not None:
        height, width = first.kernel_size
        stem = f"first layer {height}×{width}, stride {first.stride[0]}"
        parts.append(f"{stem}, max-pooling" if pooled else stem)
    if trunk.pooling:
        parts.append(f"{trunk.pooling} pooling")
    return f"{trunk.title}: {'; '.join(parts)}; {trunk.num_features} features"


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put a network in evaluation mode for a block; then each module returns to its own mode.

    A frozen layer may be in evaluation mode in a network in training mode.
    """
    in_training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        yield
    finally:
        for module in in_training:
            module.training = True


def untrained(trunk: AnyTrunk) -> AnyTrunk:
    """Build a randomly initialised network of a trunk's kind, in evaluation mode.

    Its weights are always the same, and the global generator does not change.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = type(trunk)(**trunk.arguments)
    network.preprocessing = trunk.preprocessing
    return network.eval()


def layer_features(trunk: AnyTrunk, images: Tensor, names: Sequence[str]) -> list[Tensor]:
    """Compute the features of several layers in one pass.

    Args:
        trunk: the network.
        images: ``(B, 3, H, W)`` float, normalised.
        names: of the layers, among the trunk's ``layers``.

    Returns:
        For each layer ``(B, D)``: D is about 9,216, or the trunk's width for ``last``.

    Raises:
        ValueError: the trunk has no such layer.
    """
    for name in names:
        check_name("layer", name, trunk.layers)
    pooled = []
    for name, output in zip(names, trunk(images, list(names)), strict=True):
        pooled.append(output if name == LAST else on_grid(output))
    return pooled


def on_grid(features: Tensor) -> Tensor:
    """Pool a layer to the grid that gives about 9,000 dimensions, as in the paper's App. C.

    Args:
        features: floating ``(B, C, H, W)``.

    Returns:
        ``(B, C·G²)``, G at most H and W.

    Example:
        >>> [on_grid(torch.zeros(1, c, 14, 14)).shape[1] // c for c in (64, 256, 1024, 2048)]
        [144, 36, 9, 4]
    """
    channels, height, width = features.shape[1:]
    side = round((_GRID_DIMENSIONS / channels) ** 0.5)
    side = max(1, min(side, height, width))
    return adaptive_avg_pool2d(features, side).flatten(1)


class GridAvgPool2d(nn.Module):
    """Average pooling with the paper's windows where they give ``grid``, else adaptive pooling.

    The windows of App. C fit the layers of 224-px images. On other images they give other grids, or
    none; adaptive pooling then gives the same grid, so the classifier's input keeps its size.

    Args:
        grid: height and width of the output.
        kernel_size: side of the windows.
        stride: distance of the windows.
        padding: zeros on each side; they count in the averages.

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
        """Pool ``(B, C, H, W)`` floating to ``(B, C, *grid)``."""
        sides = features.shape[2:]
        windows = [
            (side + 2 * self.padding - self.kernel_size) // self.stride + 1 for side in sides
        ]
        if tuple(windows) == self.grid:
            return avg_pool2d(features, self.kernel_size, self.stride, self.padding)
        return adaptive_avg_pool2d(features, self.grid)
