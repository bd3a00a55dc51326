"""The one comparison of weights: what it says, and what it lets pass."""

import pytest
import torch

from pirl_plugin.checkpoints.compare import compare, compare_with_model
from pirl_plugin.models.resnet import new_trunk


def state(**section):
    return new_trunk(section).state_dict()


def test_compare__says_nothing_of_what_fits():
    weights = state(DEPTH=10)
    classifier = {"fc.weight": torch.ones(1)}
    without = {k: v for k, v in weights.items() if "num_batches_tracked" not in k}
    assert not compare(weights, weights, values=True)
    assert not compare(weights, without)
    assert not compare_with_model(weights, weights | classifier)
    assert str(compare(weights, weights | classifier)) == "1 left over: fc.weight"


@pytest.mark.parametrize(
    ("wanted", "given", "message"),
    [
        ({"DEPTH": 18}, {"DEPTH": 10}, "40 of 100 missing: _feature_blocks.layer1.1.conv1.weight"),
        ({"DEPTH": 10}, {"DEPTH": 18}, "40 left over: _feature_blocks.layer1.1.conv1.weight"),
        (
            {"DEPTH": 10, "WIDTH_MULTIPLIER": 0.5},
            {"DEPTH": 10},
            "conv1.weight (64, 3, 7, 7), expected (32, 3, 7, 7)",
        ),
    ],
)
def test_compare_with_model__names_the_first_differences(wanted, given, message):
    assert message in str(compare_with_model(state(**wanted), state(**given)))


def test_compare__names_values_that_differ_by_a_bit():
    weights = {"a": torch.ones(3), "b": torch.ones(3)}
    changed = weights | {"b": torch.tensor([1.0, 1.0, 1.0 + 2**-23])}
    assert str(compare(weights, changed, values=True)) == "1 of other values: b"
    assert not compare(weights, changed)
    half = {name: tensor.half() for name, tensor in weights.items()}
    assert not compare(half, weights, values=True)  # widened, as Detectron2 does


def test_compare_with_model__leaves_position_embeddings_to_the_host():
    model = {"trunk.pos_embedding": torch.ones(1, 5, 3)}
    assert not compare_with_model(model, {"trunk.pos_embedding": torch.ones(1, 9, 3)})
    assert str(compare_with_model(model, {})) == "1 of 1 missing: trunk.pos_embedding"
