"""Check a file's classifier before computing features."""

import pytest
import torch

from pirl_plugin.checkpoints.classifier import CLASSIFIER, Classifier, read_classifier
from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.read import read_checkpoint, section_of
from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.models.resnet import WideResNet
from pirl_plugin.system.failures import Refused

CONTENT = {
    "weight": torch.ones(3, 4),
    "bias": torch.ones(3),
    "classes": ["a", "b/c", "ü"],
    "layer": "last",
}


def test_classifier__is_read(tmp_path):
    torch.save({CLASSIFIER: CONTENT}, tmp_path / "in.torch")
    found = read_classifier(tmp_path / "in.torch")
    assert found.classes == ["a", "b/c", "ü"]
    assert found.predict(torch.eye(4))[0].tolist() == [0, 0, 0, 0]


def test_classifier__is_saved_with_image_settings(tmp_path):
    """Even default image settings become fixed: another --mean would break the classifier."""
    save_trunk(WideResNet(10, 0.125), tmp_path / "in.torch", Classifier(**CONTENT))
    assert load_trunk(tmp_path / "in.torch").network_config.defaults == []


def test_classifier__is_saved_with_measured_statistics(tmp_path):
    trunk = WideResNet(10, 0.125)
    statistics = dict.fromkeys(("mean", "std", "low", "high"), (1.0, 2.0, 3.0))
    trunk.network_config = trunk.network_config.with_values("file", **statistics)
    save_trunk(trunk, tmp_path / "in.torch", Classifier(**CONTENT))
    record = section_of(read_checkpoint(tmp_path / "in.torch"))["network"]
    assert record["statistics"] == "measured"


@pytest.mark.parametrize(
    "change",
    [
        {"classes": ["a", "b", 3]},
        {"classes": ["a", "b", "c\x1b[2J"]},
        {"classes": None},
        {"layer": 3},
        None,
    ],
)
def test_damaged_classifier__is_refused(change, tmp_path):
    content = {**CONTENT, **change} if change else {"weight": CONTENT["weight"]}
    torch.save({CLASSIFIER: content}, tmp_path / "in.torch")
    with pytest.raises(Refused, match=r"in\.torch: [Tt]he classifier "):
        read_classifier(tmp_path / "in.torch")
