"""The trunk is torchvision's ResNet under VISSL's names."""

from types import SimpleNamespace

import pytest
import torch
import torchvision

from pirl_plugin.models.resnet import FEATURES
from pirl_plugin.vissl.adapters.resnet import PIRLResNet


def trunk(**section):
    return PIRLResNet(SimpleNamespace(TRUNK={"PIRL_RESNET": section}))


def trunk_parameters(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("depth", "width", "expected"),
    # ResNet-18's 11,689,512 and ResNet-50's 25,557,032 less their classifiers; c2x as in the paper
    [(18, 1, 11_176_512), (50, 1, 23_508_032), (50, 2, 93_907_072)],
)
def test_trunk__has_the_published_number_of_parameters(depth, width, expected):
    assert trunk_parameters(trunk(DEPTH=depth, WIDTH_MULTIPLIER=width)) == expected


def test_trunk__gives_torchvisions_features_to_the_bit():
    ours, theirs = trunk(DEPTH=18).eval(), torchvision.models.resnet18().eval()
    theirs.fc = torch.nn.Identity()
    state = {k.removeprefix("_feature_blocks."): v for k, v in ours.state_dict().items()}
    theirs.load_state_dict(state)
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(ours(images)[0], theirs(images))


def test_trunk__serves_every_feature_in_the_order_asked():
    names = ["res5", "conv1", "res5avg", "flatten", "res2", "res1"]
    features = trunk(DEPTH=10)(torch.randn(2, 3, 64, 64), names)
    shapes = [tuple(f.shape[1:]) for f in features]
    assert shapes == [(512, 2, 2), (64, 32, 32), (512, 1, 1), (512,), (64, 16, 16), (64, 16, 16)]
    assert set(names) <= set(FEATURES)


def test_trunk__small_stem_keeps_the_resolution():
    (res2,) = trunk(DEPTH=10, SMALL_STEM=True)(torch.randn(1, 3, 32, 32), ["res2"])
    assert res2.shape == (1, 64, 32, 32)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"DEPTH": 11}, "DEPTH = 11: expected one of 10, 18"),
        ({"WIDTH_MULTIPLIER": 0}, "WIDTH_MULTIPLIER = 0: expected a factor above 0"),
        ({"WIDTH": 2}, r"PIRL_RESNET\.WIDTH = 2: expected one of DEPTH"),
    ],
)
def test_trunk__refuses_what_it_cannot_build(section, message):
    with pytest.raises(ValueError, match=message):
        trunk(**section)


def test_trunk__names_an_unknown_feature():
    with pytest.raises(ValueError, match=r"feature 'res6': expected one of conv1.*; name"):
        trunk(DEPTH=10)(torch.randn(1, 3, 32, 32), ["res6"])
