"""What is split and joined is the batch; what ran in between leaves no trace."""

import pytest
import torch
from torch import nn

from pirl_plugin.vissl.hooks.train_step import _left_as_it_is, _share_of_mean, join, split


@pytest.mark.parametrize("largest", [1, 3, 4, 7, 20])
def test_split__keeps_the_views_of_an_image_with_its_row(largest):
    rows = torch.arange(7)
    inputs = {"images": rows[:, None], "patches": rows.repeat_interleave(9)[:, None]}
    parts = split(inputs, rows, largest)
    assert len(parts) == -(-7 // largest)
    sizes = [len(mine) for _, mine in parts]
    assert max(sizes) <= largest
    assert max(sizes) - min(sizes) <= 1  # none of one image beside larger ones
    for views, mine in parts:
        assert torch.equal(views["images"][:, 0], mine)
        assert torch.equal(views["patches"][:, 0], mine.repeat_interleave(9))
    assert torch.equal(torch.cat([mine for _, mine in parts]), rows)


def test_join__is_the_batch_without_a_graph():
    whole = torch.randn(5, 3, requires_grad=True)
    joined = join([whole[:2], whole[2:]])
    assert torch.equal(joined, whole)
    assert not joined.requires_grad
    heads = join([[whole[:2], 2 * whole[:2]], [whole[2:], 2 * whole[2:]]])
    assert torch.equal(heads[0], whole)
    assert torch.equal(heads[1], 2 * whole)


def test_left_as_it_is__undoes_buffers_and_random_numbers():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(0)
    expected = torch.rand(4)
    torch.manual_seed(0)
    with _left_as_it_is(model):
        output = model(torch.randn(8, 3))
        assert not torch.equal(model[0].running_mean, before["0.running_mean"])
    assert not output.requires_grad
    assert torch.equal(torch.rand(4), expected)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("parts", [1, 2, 5, 10])
def test_mean_loss__parts_add_up_whatever_is_labelled(parts):
    output = torch.randn(10, 4, requires_grad=True)
    target = torch.tensor([0, -1, 3, 2, 1, -1, -1, 0, 2, 1])
    cross_entropy = nn.CrossEntropyLoss(ignore_index=-1)
    expected = cross_entropy(output, target)
    (gradient,) = torch.autograd.grad(expected, output)
    loss = _share_of_mean(cross_entropy, int((target >= 0).sum()), ignored=-1)
    pieces = zip(output.chunk(parts), target.chunk(parts), strict=True)
    found = sum(loss(mine, labels) for mine, labels in pieces)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, output)[0], gradient)
