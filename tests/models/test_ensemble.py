"""Two trunks as one trunk."""

from types import SimpleNamespace

import pytest
import torch
from host_tools import write_checkpoint

from pirl_plugin.evaluation.features import load_trunk
from pirl_plugin.models.ensemble import PIRLEnsemble
from pirl_plugin.models.weights import MisfitError


def ensemble(files, **section):
    trunk = {"PIRL_RESNET": section or {"DEPTH": 10}}
    trunk["PIRL_ENSEMBLE"] = {"MEMBER": "pirl_resnet", "PARAMS_FILES": files}
    return PIRLEnsemble(SimpleNamespace(TRUNK=trunk))


def test_ensemble__puts_the_members_channels_side_by_side(tmp_path):
    files = [write_checkpoint(tmp_path / f"{i}.torch", seed=i, DEPTH=10) for i in range(2)]
    images, names = torch.randn(2, 3, 64, 64), ["conv1", "res5", "flatten"]
    both = ensemble([str(file) for file in files]).eval()(images, names)
    each = [load_trunk(file)(images, names) for file in files]
    for feature, first, second in zip(both, *each, strict=True):
        assert torch.equal(feature, torch.cat([first, second], dim=1))
        assert not torch.equal(first, second)


def test_ensemble__refuses(tmp_path):
    file = str(write_checkpoint(tmp_path / "18.torch"))
    with pytest.raises(
        MisfitError, match=r"18\.torch does not fit the trunk 'pirl_resnet'.*layer1"
    ):
        ensemble([file], DEPTH=10)
    with pytest.raises(FileNotFoundError, match="nowhere is not a file that exists"):
        ensemble(["nowhere"])
    with pytest.raises(ValueError, match=r"expected MEMBER, .* and PARAMS_FILES"):
        ensemble([])
