"""The shapes that a checkpoint is held to are those of the network that it is loaded into."""

import pytest
import torch

from pirl_plugin.checkpoints.shapes import expected_shapes
from pirl_plugin.models.resnet import STAGES, WideResNet


@pytest.mark.parametrize("small_stem", [False, True])
@pytest.mark.parametrize("width", [0.3, 1, 2])
@pytest.mark.parametrize("depth", STAGES)
def test_expected_shapes__are_those_of_the_network(depth, width, small_stem):
    with torch.device("meta"):
        net = WideResNet(depth, width, small_stem)
    shapes = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    assert list(expected_shapes(depth, width, small_stem).items()) == list(shapes.items())
