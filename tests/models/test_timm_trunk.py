"""Any network of timm as a trunk: features and widths are timm's own."""

import sys
from types import SimpleNamespace

import pytest
import torch

from pirl_plugin.checkpoints.timm_networks import TimmMissingError
from pirl_plugin.models.timm_trunk import TimmTrunk
from pirl_plugin.models.width import trunk_width
from pirl_plugin.vissl.adapters.timm import PIRLTimm

TINY = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 48, "num_heads": 2}
NETWORKS = {
    "resnet10t": {},
    "convnext_atto": {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)},
    "vit_tiny_patch16_224": TINY,
    "mobilenetv3_small_050": {},  # its classifier takes another width than its last stage has
}


def trunk(name, **options):
    section = {"NAME": name, "OPTIONS": options}
    return PIRLTimm(SimpleNamespace(TRUNK={"PIRL_TIMM": section})).eval()


@pytest.fixture(autouse=True)
def timm():
    return pytest.importorskip("timm", reason="timm is not installed")


@pytest.mark.parametrize("name", NETWORKS)
def test_trunk__gives_what_timms_classifier_would_take(name):
    ours = trunk(name, **NETWORKS[name])
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        flat, pooled = ours(images, ["flatten", "res5avg"])
        assert torch.equal(flat, ours.net(images))
    assert pooled.shape == (2, ours.width, 1, 1)
    assert torch.equal(pooled.flatten(1), flat)
    section = {"NAME": "pirl_timm", "PIRL_TIMM": {"NAME": name, "OPTIONS": NETWORKS[name]}}
    assert trunk_width(section) == ours.width == flat.shape[1]


def test_trunk__names_stages_by_timms_own_description():
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    names = ["res5", "conv1", "stage2", "res2", "flatten"]
    features = trunk("resnet10t")(images, names)
    shapes = [tuple(f.shape[1:]) for f in features]
    assert shapes == [(512, 2, 2), (64, 32, 32), (64, 16, 16), (64, 16, 16), (512,)]
    assert torch.equal(features[2], features[3])
    (block,) = trunk("vit_tiny_patch16_224", **TINY)(images[..., :32, :32], ["stage2"])
    assert block.shape == (2, 48, 4, 4)


def test_vision_transformer__takes_images_and_patches_of_two_sizes():
    ours = trunk("vit_tiny_patch16_224", **TINY)
    assert ours(torch.zeros(1, 3, 32, 32))[0].shape == ours(torch.zeros(9, 3, 16, 16))[0][:1].shape


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"NAME": "resnet10tt"}, r"NAME = resnet10tt: expected a network of timm .*resnet10t"),
        ({"NAME": "resnet10t", "OPTIONS": {"depht": 3}}, r"OPTIONS = .*depht.*expected keyword"),
        ({"NAME": "resnet10t", "WIDTH": 2}, r"PIRL_TIMM = .*WIDTH.*: expected NAME"),
        ({}, r"PIRL_TIMM = \{\}: expected NAME"),
    ],
)
def test_trunk__refuses_what_timm_does_not_have(section, message):
    with pytest.raises(ValueError, match=message):
        PIRLTimm(SimpleNamespace(TRUNK={"PIRL_TIMM": section}))


def test_trunk__names_an_unknown_feature():
    with pytest.raises(ValueError, match=r"feature 'res6' of timm's resnet10t: expected .*res5"):
        trunk("resnet10t")(torch.zeros(1, 3, 32, 32), ["res6"])


def test_trunk__refuses_batch_norms_that_lost_their_activation():
    ours = TimmTrunk("mobilenetv3_small_050")
    ours.net = torch.nn.SyncBatchNorm.convert_sync_batchnorm(ours.net)
    with pytest.raises(ValueError, match=r"CONVERT_BN_TO_SYNC_BN = True: .*set it to False"):
        ours(torch.zeros(1, 3, 32, 32))


def test_trunk__names_timm_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(TimmMissingError, match=r"'resnet10t' is timm's, .*pip install timm$"):
        TimmTrunk("resnet10t")
    with pytest.raises(ValueError, match="pip install timm"):
        trunk_width({"NAME": "pirl_timm", "PIRL_TIMM": {"NAME": "resnet18"}})


@pytest.mark.parametrize(
    ("section", "width"),
    [
        ({"NAME": "resnet", "RESNETS": {"WIDTH_MULTIPLIER": 2}}, 4096),
        ({"NAME": "pirl_resnet", "PIRL_RESNET": {"DEPTH": 50, "WIDTH_MULTIPLIER": 0.5}}, 1024),
        ({"NAME": "pirl_resnet"}, 512),
        (
            {
                "NAME": "pirl_ensemble",
                "PIRL_ENSEMBLE": {"MEMBER": "pirl_resnet", "PARAMS_FILES": ["a", "b"]},
            },
            1024,
        ),
        ({"NAME": "regnet"}, None),
    ],
)
def test_trunk_width__of_other_trunks(section, width):
    assert trunk_width(section) == width
