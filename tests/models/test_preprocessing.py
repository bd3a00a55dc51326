"""Where size, mean and deviation of a network's images come from, and what replaces them."""

import math

import pytest
import torch

from pirl_plugin.models.preprocessing import Preprocessing, normalize_images, size_of_transforms

RUN = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
OTHER = {"mean": [0.9] * 3, "std": [0.8] * 3}
DATA = {key.upper(): values for key, values in OTHER.items()}
VIEWS = [{"name": "PIRLJigsaw", "image_size": 96, "patch_size": 32}]


def config(data=None, transforms=(), hooks=None):
    return {"DATA": {**(data or {}), "TRAIN": {"TRANSFORMS": list(transforms)}}, "HOOKS": hooks}


def test_config__of_the_run_has_what_its_training_read(subtests):
    for run, expected in (
        (config(DATA, VIEWS, {"PIRL_INPUT": RUN}), {"size": 96, **RUN}),  # what training reads
        (config(DATA, [{"name": "Normalize", **RUN}]), {"size": 224, **RUN}),  # VISSL's own
        (config(DATA, VIEWS), {"size": 96, **OTHER}),
        (config(None, VIEWS, {"PIRL_INPUT": None}), {"size": 96}),
    ):
        with subtests.test(run=run):
            found = Preprocessing.from_config(run)
            assert found.record() == {**Preprocessing().record(), **expected}
            assert found.is_known
            assert found.origin == "of the checkpoint's run"


def test_size__is_that_of_the_last_transform_that_has_one(subtests):
    for transforms, size in (
        ([{"size": 73}, {"size": 64}, {"name": "ToTensor"}], 64),
        ([{"size": [224, 224]}], 224),
        ([{"size": [224, 300]}], None),
        ([{"crop_size_image": 160}], 160),
        ([], None),
    ):
        with subtests.test(transforms=transforms):
            assert size_of_transforms(transforms) == size


def test_timm__has_statistics_of_its_own():
    found = Preprocessing.from_timm({"input_size": (3, 160, 160), "mean": (0.5,) * 3}, "test_vit")
    assert found.record() == {"size": 160, "mean": [0.5] * 3, "std": [0.229, 0.224, 0.225]}
    assert str(found) == "160 px, mean 0.5 0.5 0.5, std 0.229 0.224 0.225 (of timm's test_vit)"


def test_options__replace_values_and_are_said():
    default = Preprocessing()
    assert default.with_values() is default
    found = default.with_values(std=[0.5, 0.25, 0.125])
    assert (found.size, found.mean, found.is_known) == (224, default.mean, True)
    assert found.origin.startswith("--std as given; ")
    assert found.std == (0.5, 0.25, 0.125)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mean": [123.7, 116.3, 103.5]}, r"mean = \(123\.7, .*from 0 to 1.*divide levels"),
        ({"std": [58.4, 57.1, 57.4]}, r"std = \(58\.4, .*at most 1.*divide deviations"),
        ({"std": [0.5, 0, 0.5]}, r"std = .*above 0"),
    ],
)
def test_statistics__of_levels_from_0_to_255_are_refused(options, sentence):
    """All images would be nearly the same. The host's own transforms take such values, too."""
    with pytest.raises(ValueError, match=sentence):
        Preprocessing().with_values(**options)


@pytest.mark.tensors
def test_normalize_images__refuses_other_shapes(subtests):
    for shape, says in (
        ((3, 8, 8), "expected .* RGB"),
        ((2, 8, 8, 3), "expected .* RGB"),
        ((2, 1, 8, 8), "expected .* RGB"),  # was broadcast to three
        ((2, 9, 3, 8, 8), r"expected uint8 \(B, 3, H, W\)"),
    ):
        with subtests.test(shape=shape), pytest.raises(ValueError, match=says):
            normalize_images(torch.zeros(shape, dtype=torch.uint8))


@pytest.mark.tensors
def test_normalize_images__refuses_impossible_constants(subtests):
    for constants in (
        {"std": [-1, -1, -1]},
        {"std": [0.2, 0, 0.2]},
        {"std": [0.2]},
        {"std": [math.nan] * 3},
        {"mean": [0.5]},
        {"mean": [math.inf, 0, 0]},
        {"mean": [123.7, 116.3, 103.5]},  # of levels from 0 to 255
        {"std": [58.4, 57.1, 57.4]},
    ):
        with subtests.test(constants=constants):
            (name,) = constants
            with pytest.raises(ValueError, match=f"{name} = .*: expected three numbers"):
                normalize_images(torch.zeros(1, 3, 2, 2, dtype=torch.uint8), **constants)


@pytest.mark.tensors
def test_normalize_images__refuses_other_types():
    images = torch.zeros(1, 3, 2, 2, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"images are torch.float32 .*: expected uint8"):
        normalize_images(images.float())
