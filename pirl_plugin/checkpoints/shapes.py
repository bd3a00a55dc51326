"""The shapes of a ResNet trunk's tensors, for every depth, width and stem."""

from __future__ import annotations

from functools import lru_cache

import torch
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

# Depth -> kind of block, and the number of blocks in each of the four stages.
STAGES: dict[int, tuple[type[BasicBlock] | type[Bottleneck], list[int]]] = {
    10: (BasicBlock, [1, 1, 1, 1]),
    18: (BasicBlock, [2, 2, 2, 2]),
    34: (BasicBlock, [3, 4, 6, 3]),
    50: (Bottleneck, [3, 4, 6, 3]),
    101: (Bottleneck, [3, 4, 23, 3]),
    152: (Bottleneck, [3, 8, 36, 3]),
}

_STEM = 64  # channels that conv1 puts out at width 1; those of all other layers are multiples


def is_bottleneck(depth: int) -> bool:
    """Whether the blocks are bottlenecks, whose output is four times as wide."""
    return STAGES[depth][0] is Bottleneck


def feature_width(depth: int, width: float) -> int:
    """Width of the pooled res5 features.

    Example:
        >>> feature_width(50, 2), feature_width(10, 0.5)
        (4096, 256)
    """
    return round(_STEM * width) * 8 * STAGES[depth][0].expansion


@lru_cache(maxsize=16)
def expected_shapes(depth: int, width: float, small_stem: bool) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor of a trunk, from torchvision's own ResNet with its channels scaled.

    The network of these shapes is :class:`pirl_plugin.models.resnet.WideResNet`, to which a test
    compares them.

    Args:
        depth: a key of :data:`STAGES`.
        width: channels over torchvision's.
        small_stem: whether conv1 is 3×3.

    Returns:
        Shapes by torchvision's names, without the classifier ``fc``, in the network's order.
    """
    stem = round(_STEM * width)
    kernel = 3 if small_stem else 7
    shapes = {}
    for name, shape in _torchvision_shapes(depth).items():
        channels = [size // _STEM * stem for size in shape[:2]]
        shapes[name] = (*channels, *shape[2:])
    shapes["conv1.weight"] = (stem, 3, kernel, kernel)
    return shapes


@lru_cache
def _torchvision_shapes(depth: int) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        net = ResNet(*STAGES[depth])
    del net.fc
    return {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
