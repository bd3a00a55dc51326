"""BatchNorm's statistics of one kind of input."""

import pytest
import torch
from torch import nn

from pirl_plugin.models.batch_norm import with_statistics_of
from pirl_plugin.models.resnet import new_trunk


@pytest.fixture
def trunk():
    torch.manual_seed(0)
    return new_trunk({"DEPTH": 10, "WIDTH_MULTIPLIER": 0.25}).eval()


def test_with_statistics_of__one_batch_is_normalised_as_in_training(trunk):
    batch = 3 + 2 * torch.randn(16, 3, 64, 64)
    own = with_statistics_of(trunk, [batch])
    expected = trunk.train()(batch, ["flatten"])[0]
    # The running variance is the unbiased one: at res5 a batch has 16 x 2 x 2 values.
    torch.testing.assert_close(own(batch, ["flatten"])[0], expected, rtol=0.05, atol=0.02)
    assert (trunk.eval()(batch, ["flatten"])[0] - expected).abs().max() > 0.5


def test_with_statistics_of__batches_count_the_same():
    layer = nn.BatchNorm2d(2).eval()
    batches = [torch.randn(size, 2, 4, 4) + size for size in (8, 8, 4)]
    own = with_statistics_of(nn.Sequential(layer), batches)[0]
    means = torch.stack([batch.mean((0, 2, 3)) for batch in batches]).mean(0)
    variances = torch.stack([batch.transpose(0, 1).flatten(1).var(1) for batch in batches]).mean(0)
    torch.testing.assert_close(own.running_mean, means)
    torch.testing.assert_close(own.running_var, variances)


def test_with_statistics_of__the_network_stays_as_it_is(trunk):
    before = {name: tensor.clone() for name, tensor in trunk.state_dict().items()}
    own = with_statistics_of(trunk, [torch.randn(4, 3, 64, 64)])
    assert all(torch.equal(before[name], tensor) for name, tensor in trunk.state_dict().items())
    assert not any(module.training for module in (*own.modules(), *trunk.modules()))
    momenta = [
        [module.momentum for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
        for network in (own, trunk)
    ]
    assert momenta[0] == momenta[1] != []


def test_with_statistics_of__dropout_stays_off_and_no_batch_norm_changes_nothing():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(0.9)).eval()
    images = torch.randn(2, 3, 8, 8)
    assert torch.equal(with_statistics_of(network, [images])(images), network(images))


def test_with_statistics_of__no_batch(trunk):
    with pytest.raises(ValueError, match="expected at least one batch; give"):
        with_statistics_of(trunk, [])
