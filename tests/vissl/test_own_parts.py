"""Estimators and transforms from the user's own module."""

import pickle

import pytest
import torch
from vissl.data.ssl_transforms import get_transform

from pirl_plugin.vissl.adapters.images import PIRLOwn, SourceImage
from pirl_plugin.vissl.adapters.method import VISSLPIRLLoss
from tests.helpers.configs import compose
from tests.helpers.host_runs import run, settings
from tests.helpers.own_parts import write_own_parts

PARTS = [
    "config.LOSS.pirl_loss.estimator=my_parts:margin",
    'config.DATA.TRAIN.TRANSFORMS=[{name: "my_parts:UpsideDownViews", image_size: 24}]',
]


@pytest.fixture
def module(tmp_path, monkeypatch):
    folder = tmp_path / "parts"
    folder.mkdir()
    write_own_parts(folder)
    with (folder / "my_parts.py").open("a") as file:
        file.write(
            "\n\ndef flipped(image, size):\n"
            "    image = image.resize((size, size))\n"
            "    return {'images': image, 'transformed': image.transpose(1)}\n"
        )
    monkeypatch.syspath_prepend(folder)
    return folder


def test_own_parts__are_imported_from_the_configuration(module):
    config = compose("config=pretrain/pirl/rotation_8node", *PARTS)
    loss = VISSLPIRLLoss.from_config({**config.LOSS.pirl_loss, "num_train_samples": 9})
    expected = torch.tensor([0.5, 0.0])  # (1 + 0 − 0.5), and 1 + 0 − 2 < 0
    assert torch.equal(loss._function(torch.tensor([0.5, 2]), torch.zeros(2, 3)), expected)
    entries = config.DATA.TRAIN.TRANSFORMS
    transform = pickle.loads(pickle.dumps(get_transform(entries)))  # as for a loader worker
    image = SourceImage(torch.zeros(3, 30, 40, dtype=torch.uint8), 0, 0)
    sample = {"data": [image], "data_idx": [0], "data_valid": [1]}
    assert transform(sample)["data"]["transformed"].shape == (3, 24, 24)


def test_own_function__takes_further_keys(module):
    views = PIRLOwn(part="my_parts:flipped", size=12).views
    assert views(torch.zeros(3, 30, 40, dtype=torch.uint8))["transformed"].shape == (3, 12, 12)


@pytest.mark.parametrize(
    "override",
    [
        "config.LOSS.pirl_loss.estimator=my_parts:absent",
        "config.LOSS.pirl_loss.estimator=absent_parts:margin",
        'config.DATA.TRAIN.TRANSFORMS=[{name: "absent_parts:Views"}]',
    ],
)
def test_own_parts__are_refused_if_absent(override, module):
    message = r"(my|absent)_parts:\w+ cannot be imported: .*absent.*on PYTHONPATH"
    with pytest.raises(SystemExit, match=message):
        compose("config=pretrain/pirl/rotation_8node", override)


@pytest.mark.slow
def test_own_parts__train_in_several_ranks_and_workers(module, image_folder, tmp_path):
    overrides = settings(image_folder, tmp_path / "out", 1, processes=2, workers=1)
    overrides = [word for word in overrides if "TRANSFORMS" not in word]
    run(
        *overrides,
        "+config/pirl/transforms=rotation",
        *PARTS,
        environment={"PYTHONPATH": str(module)},
    )
    assert (tmp_path / "out" / "checkpoint.torch").exists()
