"""``--timm NAME --pretrained``: timm downloads the weights or reads its cache."""

import numpy as np
import pytest
import torch

from pirl_plugin.cli import run
from pirl_plugin.system.failures import Refused
from tests.helpers.hub import cache_weights
from tests.helpers.images import save_gray

NAME = "test_vit"
TAGGED = "test_vit.r160_in1k"  # the default weights


@pytest.fixture
def folder(tmp_path):
    """Create four photos, and a hub cache with weights for the network."""
    for level in range(4):
        save_gray(tmp_path / "photos" / f"{level}.png", level=60 * level)
    torch.save(cache_weights(tmp_path / "hub", NAME), tmp_path / "weights.pth")
    return tmp_path


def test_published_weights__come_from_hub_or_are_refused(folder, monkeypatch, capsys):
    """Features are the same by name and from a file with the same weights."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "hub" / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    data = ["--data", str(folder / "photos"), "--size", "32"]
    run(["embed", "--timm", NAME, "--pretrained", *data, "--out", str(folder / "hub.npz")])
    assert "mean 0.5 0.5 0.5" in capsys.readouterr().out  # timm's value for this network
    words = ["--checkpoint", str(folder / "weights.pth"), "--timm", TAGGED]
    run(["embed", *words, *data, "--out", str(folder / "file.npz")])
    with np.load(folder / "hub.npz") as fetched, np.load(folder / "file.npz") as read:
        assert np.unique(fetched["features"], axis=0).shape == (4, 64)
        np.testing.assert_array_equal(fetched["features"], read["features"])
    missing = ["--timm", "test_resnet", "--pretrained"]  # from the cache
    remedies = (
        r"from timm/test_resnet\.r160_in1k on .*--checkpoint FILE --timm test_resnet\.r160_in1k"
    )
    with pytest.raises(Refused, match=remedies):
        run(["embed", *missing, *data, "--out", str(folder / "a.npz")])


@pytest.mark.parametrize("command", ["knn", "embed", "linear", "finetune"])
def test_weights__come_from_file_or_timm(command, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out.npz")]
    for words in ([], ["--checkpoint", "a.pth", "--pretrained"]):
        with pytest.raises(SystemExit):
            run([command, "--data", str(tmp_path), *out, *words])
        assert "--checkpoint" in capsys.readouterr().err
    for name in ("0.png", "1.png"):
        for split in ("train/a", "train/b", "val/a", "val/b"):
            save_gray(tmp_path / split / name)
    data = tmp_path / "val" if command == "embed" else tmp_path
    with pytest.raises(Refused, match="weights need timm's name for the network, as `timm`"):
        run([command, "--data", str(data), *out, "--pretrained"])
