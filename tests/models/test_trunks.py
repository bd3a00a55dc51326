"""Trunks wrap torchvision and timm networks under VISSL's names."""

from types import SimpleNamespace

import pytest
import torch
import torchvision
from omegaconf import OmegaConf

from pirl_plugin.models.network_config import network_config_of
from pirl_plugin.models.resnet import FEATURES, WideResNet
from pirl_plugin.models.timm_trunk import TimmTrunk
from pirl_plugin.models.trunks import untrained
from pirl_plugin.vissl.adapters.method import PIRLResNet, PIRLTimm
from pirl_plugin.vissl.run.computed import RESOLVERS

TINY = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 48, "num_heads": 2}
NETWORKS = {
    "resnet10t": {},
    "convnext_atto": {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)},
    "vit_tiny_patch16_224": TINY,
    "mobilenetv3_small_050": {},  # its classifier's input is wider than its last stage
}
IMAGES = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def resnet(**section):
    return PIRLResNet(SimpleNamespace(TRUNK={"PIRL_RESNET": section}))


def of_timm(name, **options):
    section = {"NAME": name, "OPTIONS": options}
    return PIRLTimm(SimpleNamespace(TRUNK={"PIRL_TIMM": section})).eval()


@pytest.mark.parametrize(
    ("depth", "width", "expected"),
    # 11,689,512 (ResNet-18) and 25,557,032 (ResNet-50) less the classifiers; c2x as in the paper
    [(18, 1, 11_176_512), (50, 1, 23_508_032), (50, 2, 93_907_072)],
)
def test_resnet__has_published_parameter_count(depth, width, expected):
    with torch.device("meta"):
        trunk = resnet(DEPTH=depth, WIDTH_MULTIPLIER=width)
    assert sum(p.numel() for p in trunk.parameters()) == expected


def test_resnet__matches_torchvision_features_bit_for_bit():
    ours, theirs = resnet(DEPTH=18).eval(), torchvision.models.resnet18().eval()
    theirs.fc = torch.nn.Identity()
    state = {k.removeprefix("_feature_blocks."): v for k, v in ours.state_dict().items()}
    theirs.load_state_dict(state)
    assert torch.equal(ours(IMAGES)[0], theirs(IMAGES))


def test_resnet__returns_features_in_requested_order():
    names = ["res5", "conv1", "res5avg", "flatten", "res2", "res1"]
    features = resnet(DEPTH=10)(IMAGES, names)
    shapes = [tuple(f.shape[1:]) for f in features]
    assert shapes == [(512, 2, 2), (64, 32, 32), (512, 1, 1), (512,), (64, 16, 16), (64, 16, 16)]
    assert set(names) <= set(FEATURES)
    (res2,) = resnet(DEPTH=10, SMALL_STEM=True)(IMAGES, ["res2"])
    assert res2.shape == (2, 64, 64, 64)


def test_resnet__refuses_unsupported_options(subtests):
    for section, message in (
        ({"DEPTH": 11}, "depth .*one of 10, 18"),
        ({"CHANNELS": 2}, "unexpected keyword argument 'channels'"),
    ):
        with subtests.test(section=section), pytest.raises((TypeError, ValueError), match=message):
            resnet(**section)


def test_resnet__accepts_any_number_of_channels():
    trunk = resnet(DEPTH=10, WIDTH_MULTIPLIER=0.125, IN_CHANNELS=5).eval()
    assert trunk(torch.zeros(1, 5, 32, 32))[0].shape == (1, 64)
    config = network_config_of(trunk)
    assert config.name == "ResNet-10 of width 0.125, 5 channels"
    assert len(config.mean) == 5


@pytest.mark.parametrize("name", NETWORKS)
def test_timm__returns_classifier_input(name):
    ours = of_timm(name, **NETWORKS[name])
    images = IMAGES[..., :32, :32]
    with torch.no_grad():
        flat, pooled = ours(images, ["flatten", "res5avg"])
        assert torch.equal(flat, ours.net(images))
    assert pooled.shape == (2, ours.num_features, 1, 1)
    assert torch.equal(pooled.flatten(1), flat)
    section = {"NAME": name, "OPTIONS": NETWORKS[name]}
    root = OmegaConf.create({"config": {"MODEL": {"TRUNK": {"PIRL_TIMM": section}}}})
    width = RESOLVERS["pirl_timm_width"](_root_=root)
    assert width == ours.num_features == flat.shape[1]


def test_timm__accepts_other_image_sizes():
    vit = of_timm("vit_tiny_patch16_224", **TINY)
    assert vit(IMAGES[..., :16, :16])[0].shape == (2, 48)


def test_timm__refuses_unknown_names_and_options(subtests):
    for section, message in (
        ({"NAME": "resnet10tt"}, r"timm \S+ cannot create timm's resnet10tt: "),
        ({"NAME": "resnet10t", "OPTIONS": {"depht": 3}}, r"cannot create .* \(depht=3\): .*depht"),
    ):
        with subtests.test(section=section), pytest.raises(ValueError, match=message):
            PIRLTimm(SimpleNamespace(TRUNK={"PIRL_TIMM": section}))


def test_timm__refuses_batch_norms_without_activation():
    ours = of_timm("mobilenetv3_small_050")
    ours.net = torch.nn.SyncBatchNorm.convert_sync_batchnorm(ours.net)
    with pytest.raises(ValueError, match=r"SyncBatchNorm removed the activations"):
        ours(IMAGES)


def test_untrained__leaves_global_random_state():
    trunk = WideResNet(10, 0.25, small_stem=True)
    before = torch.random.get_rng_state()
    first, second = untrained(trunk), untrained(trunk)
    assert torch.equal(torch.random.get_rng_state(), before)
    images = IMAGES[..., :32, :32]
    assert first(images).shape == trunk(images).shape
    assert torch.equal(first(images), second(images))


def test_untrained__keeps_timm_options():
    assert untrained(TimmTrunk("vit_tiny_patch16_224", TINY)).num_features == 48
