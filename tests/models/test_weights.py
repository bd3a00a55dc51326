"""Reading a trunk's weights, and saying what keeps them from fitting."""

import pytest
import torch
from host_tools import write_checkpoint

from pirl_plugin.models.resnet import new_trunk
from pirl_plugin.models.weights import MisfitError, describe_misfit, read_trunk_weights


def state(**section):
    return new_trunk(section).state_dict()


def test_read_trunk_weights__gives_what_was_saved(tmp_path):
    path = write_checkpoint(tmp_path / "trunk.torch", DEPTH=10)
    weights = read_trunk_weights(path)
    torch.manual_seed(0)
    assert all(torch.equal(weights[name], value) for name, value in state(DEPTH=10).items())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"state_dict": {}}, r"has no 'classy_state_dict' \(found state_dict\)"),
        ({"classy_state_dict": {"base_model": {"model": {}}}}, "has no 'trunk'"),
        (b"no checkpoint at all", "cannot be read as a checkpoint"),
    ],
)
def test_read_trunk_weights__refuses(content, message, tmp_path):
    path = tmp_path / "file.torch"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(MisfitError, match=message):
        read_trunk_weights(path)


def test_read_trunk_weights__names_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.torch is not a file that exists"):
        read_trunk_weights(tmp_path / "none.torch")


def test_describe_misfit__says_nothing_of_what_fits():
    weights = state(DEPTH=10)
    classifier = {"fc.weight": torch.ones(1)}
    without = {k: v for k, v in weights.items() if "num_batches_tracked" not in k}
    assert describe_misfit(weights, weights) is None
    assert describe_misfit(weights, weights | classifier) is None
    assert describe_misfit(weights, without) is None


@pytest.mark.parametrize(
    ("wanted", "given", "message"),
    [
        ({"DEPTH": 18}, {"DEPTH": 10}, r"40 of 100 parameters .*layer1\.1\.conv1\.weight"),
        ({"DEPTH": 10}, {"DEPTH": 18}, r"40 parameters have no place: .*layer1\.1\.conv1\.weight"),
        (
            {"DEPTH": 10, "WIDTH_MULTIPLIER": 0.5},
            {"DEPTH": 10},
            r"conv1\.weight is \(64, 3, 7, 7\) and not \(32, 3, 7, 7\)",
        ),
    ],
)
def test_describe_misfit__names_the_first_differences(wanted, given, message):
    import re

    assert re.search(message, describe_misfit(state(**wanted), state(**given)))


def test_describe_misfit__says_what_is_there_if_nothing_matches():
    found = {f"encoder.{name}": value for name, value in state(DEPTH=10).items()}
    said = describe_misfit(state(DEPTH=10), found)
    assert "it holds encoder._feature_blocks.conv1.weight" in said
