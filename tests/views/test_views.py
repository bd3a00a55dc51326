"""Views of the three tasks: shapes, geometry, both backends on the same draws, refusals."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from pirl_plugin.views import base as views_module
from pirl_plugin.views.jigsaw import JigsawViews, RotationJigsawViews
from pirl_plugin.views.kernels.backends import BACKENDS, Backend
from pirl_plugin.views.kernels.render import render_views, warm_up
from pirl_plugin.views.kernels.resize import crop_resize_pil, crop_resize_torch
from pirl_plugin.views.random import image_generator
from pirl_plugin.views.rotation import RotationViews

CLASSES = [JigsawViews, RotationViews, RotationJigsawViews]
PLAIN = {
    "brightness": 0, "contrast": 0, "saturation": 0, "hue": 0,
    "photometric_p": 0, "grayscale_p": 0, "flip_p": 0,
}  # fmt: skip


def photo(height=150, width=200, seed=0):
    """A photo-like image: smooth areas and some grain; uint8 (3, H, W), channels-last."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    smooth = np.array(coarse.resize((width, height), Image.Resampling.BICUBIC), np.int16)
    grain = rng.normal(0, 6, smooth.shape).round().astype(np.int16)
    return torch.from_numpy(np.clip(smooth + grain, 0, 255).astype(np.uint8)).permute(2, 0, 1)


def coordinates(size):
    """An image whose red is its row and whose green is its column, so that cuts can be read."""
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    return torch.stack([rows, columns, torch.zeros_like(rows)]).to(torch.uint8)


def shapes(sample):
    return {name: (tuple(view.shape), view.dtype) for name, view in sample.items()}


@pytest.mark.parametrize("views_class", CLASSES)
def test_views__shapes_and_placeholder(views_class):
    views = views_class()
    sample = views(photo(), image_generator(0, 0, 0))
    other = ((9, 3, 64, 64) if views_class is not RotationViews else (3, 224, 224), torch.uint8)
    second = "rotated" if views_class is RotationViews else "patches"
    assert shapes(sample) == {"images": ((3, 224, 224), torch.uint8), second: other}
    assert all(view.is_contiguous() for view in sample.values())
    black = views.placeholder()
    assert shapes(black) == shapes(sample)
    assert not any(view.any() for view in black.values())


def test_views__the_kernel_is_compiled_for_one_signature_only():
    for views_class in CLASSES:
        for index in range(4):  # each quarter turn, flipped or not
            views_class(flip_p=0.5)(photo(), image_generator(0, 0, index))
    warm_up()
    assert len(render_views.signatures) == 1


@pytest.mark.parametrize("views_class", CLASSES)
@pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 1), (3, 2), (40, 900)])
def test_views__any_size_of_image(views_class, size):
    for backend in BACKENDS:
        views = views_class(backend=backend)
        found = views(photo(*size), image_generator(0, 0, 1))
        assert {name: (view.shape, view.dtype) for name, view in found.items()} == {
            name: (view.shape, view.dtype) for name, view in views.placeholder().items()
        }


@pytest.mark.parametrize("views_class", CLASSES)
@pytest.mark.parametrize("extra", [{}, {"blur_p": 0.5, "equalize_p": 0.2}])
def test_views__backends_agree_to_the_bit_after_the_resize(views_class, extra, monkeypatch):
    oracle = Backend(crop_resize_torch, BACKENDS["pil"].render)
    monkeypatch.setitem(BACKENDS, "oracle", oracle)
    fused, pil = views_class(**extra), views_class(backend="oracle", **extra)
    for index in range(8):
        first = fused(photo(seed=index), image_generator(0, 0, index))
        second = pil(photo(seed=index), image_generator(0, 0, index))
        for name in first:
            torch.testing.assert_close(first[name], second[name], rtol=0, atol=0)


def test_resize__is_close_to_pil():
    rng = np.random.default_rng(0)
    differences = []
    for index in range(20):
        image = photo(seed=index)
        box = views_module.random_resized_crop_box(150, 200, (0.08, 1.0), (0.75, 4 / 3), rng)
        size = (224, 64, 255)[index % 3]
        first, second = (f(image, box, size) for f in (crop_resize_torch, crop_resize_pil))
        assert first.shape == second.shape == (size, size, 3)
        differences.append(np.abs(first.astype(int) - second).mean())
        assert np.abs(first.astype(int) - second).max() <= 1
    assert np.mean(differences) < 0.05


@pytest.mark.parametrize("size", [1, 64, 224, 255])
@pytest.mark.parametrize("box", [(0, 0, 150, 200), (7, 11, 90, 61), (149, 199, 1, 1), (3, 5, 1, 9)])
def test_resize__equals_torchs_interpolate_to_the_bit(box, size):
    image = photo()
    top, left, height, width = box
    crop = image[None, :, top : top + height, left : left + width]
    crop = crop.contiguous(memory_format=torch.channels_last)
    expected = F.interpolate(crop, size=(size, size), mode="bilinear", antialias=True)
    for pixels in (image, image.contiguous()):
        found = crop_resize_torch(pixels, box, size)
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, expected[0].permute(1, 2, 0))


@pytest.mark.parametrize("views_class", CLASSES)
def test_views__depend_only_on_seed_epoch_and_index(views_class):
    views = views_class()
    first = views(photo(), image_generator(1, 2, 3))
    views(photo(), image_generator(1, 2, 4))
    again = views_class()(photo(), image_generator(1, 2, 3))
    for name in first:
        assert torch.equal(first[name], again[name])
    for key in [(0, 2, 3), (1, 3, 3), (1, 2, 4)]:
        other = views(photo(), image_generator(*key))
        assert all(not torch.equal(first[name], other[name]) for name in first)


def test_views__memory_layout_of_the_image_does_not_matter():
    views = JigsawViews()
    image = photo()
    first = views(image, image_generator(0, 0, 0))
    second = views(image.contiguous(), image_generator(0, 0, 0))
    assert all(torch.equal(first[name], second[name]) for name in first)


def cut_corners(views, count=60):
    """Corners (rows, columns) of plain patches, read off an image of coordinates that is not
    resized: int (count, 9, 2)."""
    image = coordinates(255)
    patches = [views(image, image_generator(0, 0, k))["patches"] for k in range(count)]
    return torch.stack(patches)[..., :2, :, :].long()


def whole(**parameters):
    """A jigsaw of the whole 255 × 255 image, without photometric changes."""
    return dict(PLAIN, patches_scale=(1.0, 1.0), **parameters)


@pytest.fixture
def square_crops(monkeypatch):
    monkeypatch.setattr(views_module, "RATIO", (1.0, 1.0))


@pytest.mark.usefixtures("square_crops")
def test_jigsaw__one_patch_of_each_cell_in_random_order():
    patches = cut_corners(JigsawViews(**whole()))
    corners = patches[..., 0, 0]
    assert ((patches[..., 63, 63] - corners) == 63).all()
    cells = corners // 85
    assert ((corners % 85) <= 21).all()
    order = cells[..., 0] * 3 + cells[..., 1]
    assert (order.sort(dim=1).values == torch.arange(9)).all()
    assert len({tuple(o) for o in order.tolist()}) == 60


@pytest.mark.usefixtures("square_crops")
def test_jigsaw__finite_permutation_sets_are_kept():
    views = JigsawViews(**whole(num_permutations=3))
    cells = cut_corners(views)[..., 0, 0] // 85
    order = cells[..., 0] * 3 + cells[..., 1]
    assert {tuple(o) for o in order.tolist()} == {tuple(o) for o in views.permutations.orders}


@pytest.mark.usefixtures("square_crops")
@pytest.mark.parametrize("flip", ["patch", "image", "none"])
def test_jigsaw__flips(flip):
    parameters = whole(flip=flip) | {"flip_p": 0.5}
    patches = cut_corners(JigsawViews(**parameters))
    mirrored = patches[:, :, 1, 0, 0] > patches[:, :, 1, 0, 63]  # columns run backwards
    share = mirrored.float().mean(dim=1)
    if flip == "none":
        assert not mirrored.any()
    elif flip == "image":
        assert set(share.tolist()) == {0.0, 1.0}
        assert 0.2 < share.mean() < 0.8
    else:
        assert ((share > 0) & (share < 1)).float().mean() > 0.9
        assert 0.4 < share.mean() < 0.6


@pytest.mark.usefixtures("square_crops")
def test_jigsaw__an_image_flip_is_a_flip_before_the_cut():
    views = JigsawViews(**whole(flip="image") | {"flip_p": 1.0})
    straight = JigsawViews(**whole(flip="none"))
    image = photo(255, 255)
    mirrored = image.flip(2)
    first = views(image, image_generator(0, 0, 0))["patches"]
    second = straight(mirrored, image_generator(0, 0, 0))["patches"]
    assert torch.equal(first, second)


@pytest.mark.usefixtures("square_crops")
def test_rotation_jigsaw__turns_before_it_cuts():
    patches = cut_corners(RotationJigsawViews(**whole()), count=200)
    right = patches[..., 0, 1] - patches[..., 0, 0]  # (200, 9, 2): step of (row, column)
    assert (right == right[:, :1]).all()  # one turn for the whole crop
    turns, counts = torch.unique(right[:, 0], dim=0, return_counts=True)
    assert sorted(map(tuple, turns.tolist())) == [(-1, 0), (0, -1), (0, 1), (1, 0)]
    assert counts.min() > 30
    cells = patches[..., 32, 32] // 85
    assert ((cells[..., 0] * 3 + cells[..., 1]).sort(dim=1).values == torch.arange(9)).all()


@pytest.mark.usefixtures("square_crops")
def test_rotation__turns_by_each_quarter_equally_often():
    views = RotationViews(image_size=32, image_scale=(1.0, 1.0), **PLAIN)
    image = photo(32, 32)
    turned = [torch.rot90(image, k, (1, 2)) for k in range(4)]
    counts = np.zeros(4)
    for index in range(400):
        sample = views(image, image_generator(0, 0, index))
        assert torch.equal(sample["images"], image)
        counts[[torch.equal(sample["rotated"], turn) for turn in turned].index(True)] += 1
    assert ((counts - 100) ** 2 / 100).sum() < 21  # 0.01 % point for 3 degrees of freedom


@pytest.mark.usefixtures("square_crops")
def test_rotation__the_two_views_are_drawn_on_their_own():
    views = RotationViews(image_size=32)
    sample = views(photo(), image_generator(0, 0, 0))
    turned = [torch.rot90(sample["rotated"], k, (1, 2)) for k in range(4)]
    assert not any(torch.equal(sample["images"], turn) for turn in turned)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (
            {"patch_size": 86},
            "patch_size = 86: expected at most 85, .* a cell.*; lower it",
        ),
        ({"patch_size": 0}, "patch_size = 0: expected a whole number of at least 1; "),
        ({"image_size": -1}, "image_size = -1:"),
        ({"image_size": 224.0}, "image_size = 224.0:"),
        ({"grid": 0}, "grid = 0:"),
        ({"patches_crop_size": "big"}, "patches_crop_size = 'big':"),
        ({"image_scale": (0.0, 1.0)}, r"image_scale = \(0.0, 1.0\): expected \[smallest"),
        ({"patches_scale": (1.0, 0.6)}, "patches_scale"),
        ({"patches_scale": 0.6}, "patches_scale = 0.6:"),
        ({"backend": "cuda"}, "backend = 'cuda': expected one of fused, pil; "),
        ({"flip": True}, "flip = True: expected one of patch, image, none; "),
        ({"num_permutations": 0}, "num_permutations = 0:"),
        ({"patchsize": 64}, "patchsize = 64: expected .* image_size.*flip_p; write patch_size"),
        ({"hue": 2}, "hue = 2:"),
    ],
)
@pytest.mark.parametrize("views_class", [JigsawViews, RotationJigsawViews])
def test_views__refuse_bad_parameters(views_class, parameters, words):
    with pytest.raises(ValueError, match=words):
        views_class(**parameters)


def test_rotation__refuses_what_only_the_jigsaw_has():
    with pytest.raises(ValueError, match=r"patch_size = 64: expected one of the options"):
        RotationViews(patch_size=64)


@pytest.mark.parametrize("views_class", CLASSES)
@pytest.mark.parametrize(
    ("pixels", "says"),
    [
        (torch.rand(3, 80, 80), "pixels are torch.float32: expected a uint8 tensor"),
        (
            np.zeros((80, 80, 3), np.uint8),
            r"numpy's ndarray: .* torch\.from_numpy\(array\)\.permute",
        ),
        (
            Image.new("RGB", (80, 80)),
            r"pixels are PIL's Image: expected a uint8 tensor \(3, H, W\)",
        ),
        (torch.zeros(80, 80, 3, dtype=torch.uint8), r"\(80, 80, 3\): .* give pixels\.permute\(2"),
        (torch.zeros(4, 80, 80, dtype=torch.uint8), r"pixels are \(4, 80, 80\): expected"),
        (torch.zeros(2, 3, 80, 80, dtype=torch.uint8), r"\(2, 3, 80, 80\): .* one image at a time"),
    ],
)
def test_views__refuse_other_pixels(views_class, pixels, says):
    with pytest.raises(ValueError, match=says):
        views_class()(pixels, image_generator(0, 0, 1))
