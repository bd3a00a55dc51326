"""Two trunks as one trunk."""

from types import SimpleNamespace

import pytest
import torch
import torchvision

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.vissl.adapters.method import PIRLEnsemble
from tests.helpers.host_tools import write_checkpoint


def ensemble(files, **section):
    trunk = {"PIRL_RESNET": section or {"DEPTH": 10}}
    trunk["PIRL_ENSEMBLE"] = {"MEMBER": "pirl_resnet", "PARAMS_FILES": files}
    return PIRLEnsemble(SimpleNamespace(TRUNK=trunk))


def test_ensemble__concatenates_member_channels(tmp_path):
    files = [write_checkpoint(tmp_path / f"{i}.torch", seed=i, DEPTH=10) for i in range(2)]
    images, names = torch.randn(2, 3, 64, 64), ["conv1", "res5", "flatten"]
    both = ensemble([str(file) for file in files]).eval()(images, names)
    each = [load_trunk(file).named_features(images, names) for file in files]
    for feature, first, second in zip(both, *each, strict=True):
        assert torch.equal(feature, torch.cat([first, second], dim=1))
        assert not torch.equal(first, second)


def test_ensemble__refuses_invalid_members(tmp_path):
    file = str(write_checkpoint(tmp_path / "18.torch"))
    with pytest.raises(ValueError, match=r"18\.torch does not fit 'pirl_resnet'.*layer1"):
        ensemble([file], DEPTH=10)
    with pytest.raises(FileNotFoundError, match=r"No such file .*nowhere"):
        ensemble(["nowhere"])


def test_ensemble__accepts_plain_state_dict(tmp_path):
    net = torchvision.models.resnet18()
    torch.save(net.state_dict(), tmp_path / "resnet18.pth")
    (member,) = ensemble([str(tmp_path / "resnet18.pth")], DEPTH=18).members
    assert torch.equal(member.state_dict()["_feature_blocks.conv1.weight"], net.conv1.weight)
