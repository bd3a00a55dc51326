"""The VISSL-facing transforms: keyed draws, placeholders, configuration, from file to batch."""

import pytest
import torch
from PIL import Image

from pirl_plugin.images.names import PIRL_TRANSFORMS
from pirl_plugin.vissl.adapters.collator import pirl_collator
from pirl_plugin.vissl.adapters.source import PIRLDiskDataset, SourceImage
from pirl_plugin.vissl.adapters.transforms import (
    PIRLImage,
    PIRLJigsaw,
    PIRLRotation,
    PIRLRotationJigsaw,
    PredictJigsaw,
    PredictRotation,
)

PIRL = [PIRLImage, PIRLJigsaw, PIRLRotation, PIRLRotationJigsaw]
CLASSES = [*PIRL, PredictJigsaw, PredictRotation]
SMALL = {
    "PIRLJigsaw": {"image_size": 32, "patches_crop_size": 36, "patch_size": 8},
    "PIRLRotation": {"image_size": 32},
    "PIRLRotationJigsaw": {"image_size": 32, "patches_crop_size": 36, "patch_size": 8},
    "PIRLImage": {"image_size": 32},
    "PredictJigsaw": {"num_permutations": 20, "patches_crop_size": 36, "patch_size": 8},
    "PredictRotation": {"image_size": 32},
}


def make(transform_class, **more):
    name = transform_class.__name__
    return transform_class.from_config({"name": name, "indices": [0], **SMALL[name], **more})


def sample(index=0, valid=1, seed=0, epoch=0):
    pixels = torch.arange(3 * 40 * 50).reshape(3, 40, 50).to(torch.uint8)
    data = SourceImage(pixels, seed, epoch)
    return {"data": [data], "data_idx": [index], "data_valid": [valid], "label": [index]}


def test_transforms__bear_the_registered_names():
    assert {transform.__name__ for transform in CLASSES} == PIRL_TRANSFORMS


@pytest.mark.parametrize("transform_class", PIRL)
def test_transforms__are_keyed_on_seed_epoch_and_row(transform_class):
    first = make(transform_class)(sample(4))
    assert {key: first[key] for key in ("data_idx", "data_valid", "label")} == {
        "data_idx": [4], "data_valid": [1], "label": [4]
    }  # fmt: skip
    again = make(transform_class)(sample(4))["data"]
    assert all(torch.equal(view, again[name]) for name, view in first["data"].items())
    for key in ({"index": 5}, {"index": 4, "seed": 1}, {"index": 4, "epoch": 1}):
        other = make(transform_class)(sample(**key))["data"]
        assert all(not torch.equal(view, other[name]) for name, view in first["data"].items())


@pytest.mark.parametrize("transform_class", CLASSES)
def test_transforms__unreadable_images_get_black_views(transform_class):
    transform = make(transform_class)
    black = transform(sample(valid=-1))["data"]
    shapes = {name: view.shape for name, view in transform(sample())["data"].items()}
    assert {name: view.shape for name, view in black.items()} == shapes
    assert not any(view.any() for view in black.values())


@pytest.mark.parametrize("data", [Image.new("RGB", (9, 9)), torch.zeros(3, 9, 9)])
def test_transforms__ask_for_their_own_source(data):
    with pytest.raises(TypeError, match=r"DATA_SOURCES: \[pirl_disk_folder\].*first"):
        make(PIRLJigsaw)(sample() | {"data": [data]})


@pytest.mark.parametrize("transform_class", CLASSES)
def test_transforms__refuse_unknown_keys(transform_class):
    with pytest.raises(ValueError, match=r"colour = 1: expected one of the options .*; "):
        make(transform_class, colour=1)
    with pytest.raises(ValueError, match=r"colour = 1: expected one of the options .*; "):
        make(transform_class, photometric={"colour": 1})


def test_transforms__photometric_parameters_may_stand_together():
    made = make(PIRLJigsaw, photometric={"blur_p": 0.5, "hue": 0.1}, hue=0.3).views.photometric
    assert (made.blur_p, made.hue, made.contrast) == (0.5, 0.3, 0.4)


@pytest.mark.parametrize("transform_class", PIRL)
def test_from_file_to_batch__a_broken_file_is_masked(transform_class, tmp_path):
    for row in range(3):
        Image.new("RGB", (60, 40), (80 * row, 9, 9)).save(tmp_path / f"{row}.jpg")
    (tmp_path / "1.jpg").write_bytes(b"broken")
    cfg = {"DATA": {"TRAIN": {"TRANSFORMS": [{"name": transform_class.__name__}]}}}
    source = PIRLDiskDataset(cfg, "pirl_disk_folder", str(tmp_path), "TRAIN")
    transform = make(transform_class)
    samples = []
    for row in range(3):
        image, valid = source[row]
        samples.append(
            transform({"data": [image], "data_idx": [row], "data_valid": [1 if valid else -1]})
        )
    batch = pirl_collator(samples)
    assert batch["label"][0].tolist() == [0, -1, 2]
    assert batch["images"][0].shape == (3, 3, 32, 32)
    assert not batch["images"][0][1].any()
    assert batch["images"][0][2].any()
