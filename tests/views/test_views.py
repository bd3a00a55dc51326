"""Views for all pretext tasks: bit-equal to PIL, accepted image types, and refusals."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, default_collate
from torchvision.datasets import FakeData

from pirl_plugin.views import base, jigsaw
from pirl_plugin.views.base import ImageViews
from pirl_plugin.views.jigsaw import JigsawTask, JigsawViews, RotationJigsawViews
from pirl_plugin.views.pixels import (
    image_generator,
)
from pirl_plugin.views.rotation import RotationTask, RotationViews
from tests.views.oracle import render_pil

CLASSES = [JigsawViews, RotationViews, RotationJigsawViews, ImageViews, RotationTask]


def photo(height=120, width=160, seed=0):
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


@pytest.mark.parametrize("views", [*(c() for c in CLASSES), JigsawViews(flip="image", blur_p=0.5)])
def test_views__match_reference_bit_for_bit(views, monkeypatch):
    fused = [views(photo(), image_generator(3, epoch, 7)) for epoch in range(3)]
    for module in (base, jigsaw):
        monkeypatch.setattr(module, "render", render_pil)
    for epoch, sample in enumerate(fused):
        oracle = views(photo(), image_generator(3, epoch, 7))
        assert sample.keys() == oracle.keys()
        assert all(torch.equal(sample[name], oracle[name]) for name in oracle)


def test_jigsaw__patch_size_follows_image_size():
    """With fixed 64-px patches, a 64-px image gave nine patches as large as itself."""
    sizes = {}
    for image_size in (224, 112, 64):
        views = JigsawViews(image_size)
        sizes[image_size] = (views.patches_crop_size, views.patch_size)
    assert sizes == {
        224: (255, 64),
        112: (128, 32),
        64: (73, 18),
    }  # 255/224, 64/224
    given = JigsawViews(64, patches_crop_size=96, patch_size=24)
    assert (given.patches_crop_size, given.patch_size) == (96, 24)


def test_jigsaw__label_gives_patch_order():
    plain = {"jitter_p": 0, "photometric_p": 0, "grayscale_p": 0, "flip_p": 0}
    views = JigsawTask(20, patches_crop_size=96, patch_size=32, patches_scale=(1, 1), **plain)
    image = torch.arange(9, dtype=torch.uint8).reshape(1, 3, 3) * 20  # nine flat cells
    image = image.repeat_interleave(32, 1).repeat_interleave(32, 2).expand(3, -1, -1)
    for row in range(20):
        sample = views(image, image_generator(0, 0, row))
        order = views.permutations.orders[sample["label"]]
        assert sample["patches"].shape == (9, 3, 32, 32)
        assert (sample["patches"][:, 0, 16, 16] // 20).tolist() == order.tolist()


@pytest.mark.parametrize("flip", ["patch", "image", "none"])
def test_jigsaw__flips_patches_or_crop_or_nothing(flip):
    plain = {"jitter_p": 0, "photometric_p": 0, "grayscale_p": 0, "flip_p": 1}
    sizes = {"patches_crop_size": 96, "patch_size": 32, "patches_scale": (1, 1)}
    views = JigsawTask(1, flip=flip, **sizes, **plain)
    ramp = torch.arange(96, dtype=torch.uint8).expand(3, 96, 96)  # a pixel's value is its column
    patches = views(ramp, image_generator(0, 0, 0))["patches"]
    shown = torch.arange(96)  # the columns of the crop, from left to right
    if flip == "image":
        shown = shown.flip(0)
    for patch, cell in zip(patches, views.permutations.orders[0].tolist(), strict=True):
        columns = shown[32 * (cell % 3) : 32 * (cell % 3) + 32]
        if flip == "patch":
            columns = columns.flip(0)
        assert patch[0, 0].tolist() == columns.tolist()


def test_rotation_task__turns_by_the_label():
    views = RotationTask(image_size=32)
    upright = RotationViews(image_size=32)
    for row in range(8):
        sample = views(photo(), image_generator(0, 0, row))
        same = upright._standard_view(photo(), image_generator(0, 0, row))
        turned = torch.rot90(same, int(sample["label"]), (1, 2))
        assert torch.equal(sample["transformed"], turned)


def test_views__are_the_same_for_pil_array_and_tensor():
    pixels = photo()
    array = pixels.permute(1, 2, 0).numpy()
    made = [
        JigsawViews()(image, image_generator(0, 0, 0))["patches"]
        for image in (pixels, array, Image.fromarray(array))
    ]
    assert torch.equal(made[0], made[1])
    assert torch.equal(made[0], made[2])


def test_views__refuse_other_objects(subtests):
    for image, says in (
        (torch.zeros(3, 80, 80, dtype=torch.complex64), "complex64 values"),
        ("cat.jpg", "of type str"),
        (torch.zeros(2, 3, 80, 80, dtype=torch.uint8), r"shape \(2, 3, 80, 80\)"),
    ):
        with subtests.test(says), pytest.raises(ValueError, match=says):
            JigsawViews()(image)


def test_views__work_as_torchvision_transform():
    data = FakeData(8, (3, 60, 80), 2, transform=JigsawViews(image_size=32))
    torch.manual_seed(0)
    passes = [
        next(iter(DataLoader(data, 4, num_workers=1, collate_fn=default_collate))) for _ in range(2)
    ]
    assert passes[0][0]["patches"].shape == (4, 9, 3, 9, 9)  # 64/224 · 32 px
    assert not torch.equal(passes[0][0]["images"], passes[1][0]["images"])


def test_views__refuse_invalid_parameters(subtests):
    for parameters, words in (
        (
            {"patch_size": 86},
            r"patches of 86 px do not fit into cells of 85 px \(patches_crop_size",
        ),
        ({"patches_scale": (1.0, 0.6)}, "patches_scale"),
        ({"image_scale": 0.5}, r"image_scale = 0.5: expected the smallest and the largest frac"),
        ({"image_scale": ("a", 1)}, r"image_scale = \('a', 1\): expected the smallest"),
        ({"flip": True}, "flip = True: expected one of patch, image, none"),
        ({"patchsize": 64}, "unexpected keyword argument 'patchsize'"),
        ({"hue": 2}, "hue = 2:"),
    ):
        with (
            subtests.test(parameters=parameters),
            pytest.raises((TypeError, ValueError), match=words),
        ):
            JigsawViews(**parameters)
