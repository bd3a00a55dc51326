"""A classifier in a file is checked before features are computed."""

import pytest
import torch

from pirl_plugin.checkpoints.classifier import CLASSIFIER, read_classifier
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


@pytest.mark.parametrize(
    "change",
    [
        {"classes": ["a", "b", "c", "d", "e"]},
        {"classes": ["a", "b", 3]},
        {"classes": ["a", "b", "c\x1b[2J"]},
        {"classes": None},
        {"weight": torch.full((3, 4), torch.nan)},
        {"bias": torch.full((3,), torch.inf)},
        {"bias": torch.ones(2)},
        {"weight": torch.ones(3)},
        {"weight": torch.tensor(1.0)},
        {"weight": [1.0]},
        {"layer": 3},
        None,
    ],
)
def test_damaged_classifier__is_refused(change, tmp_path):
    content = {**CONTENT, **change} if change else {"weight": CONTENT["weight"]}
    torch.save({CLASSIFIER: content}, tmp_path / "in.torch")
    with pytest.raises(Refused, match=r"in\.torch: [Tt]he classifier "):
        read_classifier(tmp_path / "in.torch")
