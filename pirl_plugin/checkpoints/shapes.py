"""The shapes of a ResNet trunk's tensors, for every depth, width and stem."""

from __future__ import annotations

from functools import lru_cache

import torch
from torchvision.models.resnet import Bottleneck, ResNet

from pirl_plugin.models.resnet import STAGES

_STEM = 64  # channels that conv1 puts out at width 1; those of all other layers are multiples


def is_bottleneck(depth: int) -> bool:
    """Whether the blocks are bottlenecks, whose output is four times as wide."""
    return STAGES[depth][0] is Bottleneck


@lru_cache(maxsize=16)
def expected_shapes(depth: int, width: float, small_stem: bool) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor of a trunk, from torchvision's own ResNet with its channels scaled.

    The network of these shapes is :class:`pirl_plugin.models.resnet.WideResNet`, to which a test
    compares them.

    Args:
        depth: a key of :data:`~pirl_plugin.models.resnet.STAGES`.
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
