"""The record of a run's images, from VISSL's configuration."""

import pytest
from vissl.config import AttrDict

from pirl_plugin.models.network_config import NetworkConfig
from pirl_plugin.vissl.adapters.run_images import set_images
from pirl_plugin.vissl.sections import size_of_transforms

RUN = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
OTHER = {"mean": [0.9] * 3, "std": [0.8] * 3}
DATA = {key.upper(): values for key, values in OTHER.items()}
VIEWS = [{"name": "PIRLJigsaw", "image_size": 96, "patch_size": 32}]


def config(data=None, transforms=(), hooks=None):
    return {
        "DATA": {
            **(data or {}),
            "TRAIN": {"TRANSFORMS": list(transforms)},
            "TEST": {"TRANSFORMS": []},
        },
        "HOOKS": hooks or {},
    }


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (config(DATA, VIEWS, {"PIRL_INPUT": RUN}), {"size": 96, **RUN}),  # used in training
        (config(DATA, [{"name": "Normalize", **RUN}]), RUN),  # VISSL's own
        (config(DATA, VIEWS), {"size": 96, **OTHER}),
        (config(None, VIEWS, {"PIRL_INPUT": None}), {"size": 96}),
    ],
)
def test_images__are_those_that_the_network_gets(run, expected):
    expected = {**expected, "dtype": "uint8"}
    found = set_images(AttrDict(run), NetworkConfig())
    assert found == NetworkConfig().with_values("run", **expected)
    if "mean" in expected:
        expected["statistics"] = "given"
    assert found.to_dict() == {"architecture": "", "options": {}, **expected}


def test_size__comes_from_last_transform_with_a_size(subtests):
    for transforms, size in (
        ([{"size": 73}, {"size": 64}, {"name": "ToTensor"}], 64),
        ([{"size": [224, 224]}], 224),
        ([{"size": [224, 300]}], None),
        ([{"crop_size_image": 160}], 160),
        ([], None),
    ):
        with subtests.test(transforms=transforms):
            assert size_of_transforms(transforms) == size
