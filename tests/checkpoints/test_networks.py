"""The overlay that is named for a network has that network."""

import pytest

from pirl_plugin.checkpoints.networks import network_of_section, resnet, timm_network
from pirl_plugin.vissl.fit import check_fit
from tests.helpers.configs import compose

CONFIGS = {
    "linear": "linear_imagenet1k",
    "finetune": "semi_supervised_imagenet1k_1percent",
}
NETWORKS = [
    (10, 0.5, False),
    (10, 0.5, True),
    (10, 1, False),
    (18, 1, True),
    (34, 1, False),
    (50, 1, False),
    (101, 2, False),
    (50, 4, False),
]


@pytest.mark.parametrize(("depth", "width", "small_stem"), NETWORKS)
def test_overrides__give_a_configuration_the_network(depth, width, small_stem):
    network = resnet(depth, width, small_stem)
    for group, name in CONFIGS.items():
        if overrides := network.overrides(group):
            config = compose(f"config=benchmark/pirl/{name}", *overrides)
            assert network_of_section(config.MODEL.TRUNK).title == network.title


def test_overrides__are_of_overlays_that_exist():
    assert resnet(10, 0.5, False).overrides("linear") == ["+config/pirl/linear=resnet10"]
    assert resnet(10, 0.5, False).overrides("finetune") is None
    assert resnet(34, 0.5, False).overrides("linear") is None
    assert resnet(50, 2, True).overrides("linear") is None


def test_overrides__of_a_network_fit_the_heads():
    for depth, width in ((10, 0.5), (18, 1)):
        given = resnet(depth, width, False).overrides("linear")
        check_fit(compose("config=benchmark/pirl/quick_linear", *given))


def test_overrides__name_a_network_of_timm_and_its_options():
    network = timm_network("vit_tiny_patch16_224", {"img_size": 48})
    overrides = network.overrides("linear")
    config = compose("config=benchmark/pirl/linear_imagenet1k", *overrides)
    assert network_of_section(config.MODEL.TRUNK) == network
    assert network.with_article == "timm's vit_tiny_patch16_224 (img_size=48)"


def test_network__of_a_depth_that_only_the_host_has_is_not_known():
    """VISSL has a ResNet-200, whose stages nothing here knows."""
    config = compose(
        "config=benchmark/pirl/linear_imagenet1k", "config.MODEL.TRUNK.RESNETS.DEPTH=200"
    )
    assert network_of_section(config.MODEL.TRUNK) is None
