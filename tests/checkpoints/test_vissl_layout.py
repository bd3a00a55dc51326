"""A trunk by the names of VISSL's trunks, from VISSL's layout or any other."""

import pickle

import pytest
import torch

from pirl_plugin.checkpoints.vissl_layout import read_trunk_state
from tests.helpers.export_files import bare, prefixed, same, small_trunk, vissl_checkpoint


class Planted:
    """A pickle of this object creates a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize(
    "layout",
    [
        vissl_checkpoint,
        lambda trunk: vissl_checkpoint(prefixed(trunk, "base_model._feature_blocks.")),
        bare,
        lambda trunk: {"state_dict": prefixed(trunk, "module.")},
    ],
    ids=["pre-training", "benchmark", "torchvision", "distributed"],
)
def test_read_trunk_state__gives_vissls_names(layout, tmp_path):
    trunk = small_trunk()
    torch.save(layout(trunk), tmp_path / "in.torch")
    assert same(read_trunk_state(tmp_path / "in.torch"), trunk)


@pytest.mark.parametrize("extra", ["checksum", "fingerprint", "pirl_plugin"])
def test_read_trunk_state__takes_checkpoints_with_and_without_further_entries(extra, tmp_path):
    trunk = small_trunk()
    checkpoint = {**vissl_checkpoint(trunk), extra: {"paths": "5f3a", "count": 3}}
    torch.save(checkpoint, tmp_path / "in.torch")
    assert same(read_trunk_state(tmp_path / "in.torch"), trunk)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"state_dict": {}}, r"holds no ResNet trunk"),
        ({"classy_state_dict": {"base_model": {"model": {}}}}, "holds no ResNet trunk"),
        (b"no checkpoint at all", "is no checkpoint: expected a file of torch"),
    ],
)
def test_read_trunk_state__refuses(content, message, tmp_path):
    path = tmp_path / "file.torch"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(ValueError, match=message):
        read_trunk_state(path)


def test_read_trunk_state__names_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.torch"):
        read_trunk_state(tmp_path / "none.torch")


@pytest.mark.parametrize("protocol", [2, 4])
def test_read_trunk_state__runs_no_planted_code(protocol, tmp_path):
    ran, file = tmp_path / "ran", tmp_path / "planted.torch"
    planted = {**vissl_checkpoint(small_trunk()), "args": Planted(ran)}
    torch.save(planted, file, pickle_protocol=protocol)
    with pytest.raises(ValueError, match=r"safe loading refuses .*--trust-pickle"):
        read_trunk_state(file)
    file.write_bytes(pickle.dumps(planted["args"], protocol))
    with pytest.raises(ValueError, match=r"a pickle with a (_?io)\.open"):
        read_trunk_state(file)
    assert not ran.exists()
