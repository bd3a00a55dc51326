"""Any image function as views, in a data set with reproducible draws."""

import random

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Subset
from torchvision import transforms as v1
from torchvision.transforms import v2

import pirl_plugin as pirl
from pirl_plugin.images.image_dataset import ImageDataset, collate_views
from pirl_plugin.models.preprocessing import normalize_images
from pirl_plugin.views.pixels import image_generator
from tests.helpers.images import save_gray

PHOTOS = [torch.randint(256, (3, 20, 24), dtype=torch.uint8) for _ in range(3)]


def with_generator(image, rng=None):
    assert isinstance(image, Image.Image)
    return {"drawn": torch.from_numpy(rng.random(3)), "size": image.size}


def of_global_generators(image):
    return torch.tensor([torch.rand(()), np.random.rand(), random.random()])


CALLABLES = {
    "v1": v1.Compose([v1.RandomResizedCrop(16), v1.ColorJitter(0.4, 0.4, 0.4), v1.ToTensor()]),
    "v2": v2.Compose([v2.RandomResizedCrop(16), v2.ToImage(), v2.ToDtype(torch.float32, True)]),
    "PIL out": v2.RandomCrop(8),
    "rng": with_generator,
    "global": of_global_generators,
    "ours": pirl.JigsawViews(image_size=16),
}


@pytest.mark.parametrize("name", CALLABLES)
def test_callable__draws_repeat_only_after_set_epoch(name):
    torch.manual_seed(0)
    data = ImageDataset(PHOTOS, CALLABLES[name], seed=1)
    view = "drawn" if name == "rng" else "images"

    def views(epoch):
        data.set_epoch(epoch)
        return data[1][view]

    first = views(0)
    state = torch.random.get_rng_state()
    assert torch.equal(views(0), first)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not torch.equal(views(1), first)
    data.set_epoch(0)
    assert not torch.equal(data[2][view], first)
    data = ImageDataset(PHOTOS, CALLABLES[name], seed=1)
    assert not torch.equal(data[1][view], data[1][view])  # no epoch set


def test_callable__receives_keyed_generator():
    data = ImageDataset(PHOTOS, with_generator, seed=3)
    data.set_epoch(2)
    expected = image_generator(3, 2, 1).random(3)
    np.testing.assert_array_equal(data[1]["drawn"], expected)


def test_class_instead_of_instance__is_refused_before_a_worker_reads():
    with pytest.raises(ValueError, match=r"JigsawViews'>: expected .* such as JigsawViews\(\)"):
        ImageDataset(PHOTOS, pirl.JigsawViews)


def test_unreadable__has_zeros_in_the_views_shapes():
    data = ImageDataset([None, *PHOTOS, None], CALLABLES["v1"])
    (batch,) = DataLoader(data, 5, collate_fn=collate_views)
    assert batch["images"].shape == (5, 3, 16, 16)
    assert not batch["images"][[0, 4]].any()
    assert batch["index"].tolist() == [-1, 1, 2, 3, -1]
    named = ImageDataset([None, *PHOTOS], with_generator)[0]
    assert named["drawn"].tolist() == [0, 0, 0]
    assert named["size"] == (224, 224)


def test_dataset__refuses_all_unreadable_images():
    with pytest.raises(ValueError, match=r"None of 3 images .*list\[0\]: the item has no"):
        ImageDataset([None] * 3, CALLABLES["ours"])


def test_library__accepts_one_image(tmp_path):
    save_gray(tmp_path / "1.png", 9)
    network = pirl.WideResNet(10, 0.25)
    for place in (tmp_path / "1.png", str(tmp_path), [tmp_path / "1.png"], PHOTOS[:1]):
        assert ImageDataset(place, pirl.ImageViews(image_size=8))[0]["index"] == 0
        features, readable = pirl.extract_features(network, place, size=32)
        assert (tuple(features.shape), readable.tolist()) == ((1, 128), [True])


def test_subset__has_images_without_views():
    network = pirl.WideResNet(10, 0.25)
    data = ImageDataset([*PHOTOS, None], pirl.ImageViews(image_size=8))
    features, readable = pirl.extract_features(network, data, size=32)
    part = Subset(ConcatDataset([Subset(data, [0, 1]), data]), [5, 1, 0])  # rows 3, 1, 0
    for source in (part, ImageDataset(part, pirl.ImageViews(image_size=8))):
        of_part = pirl.extract_features(network, source, size=32)
        assert of_part[1].tolist() == readable[[3, 1, 0]].tolist() == [False, True, True]
        torch.testing.assert_close(of_part[0], features[[3, 1, 0]], equal_nan=True)
    views = ImageDataset(part, pirl.ImageViews(image_size=16))
    assert [views[row]["index"] for row in range(3)] == [-1, 1, 2]
    assert views[1]["images"].shape == (3, 16, 16)
    assert views.source.unreadable_paths() == ["list[3]"]
    with pytest.raises(ValueError, match=r"items in list are views.* Pass the ImageDataset itself"):
        pirl.extract_features(network, list(data), size=32)


def test_views__are_unaffected_by_feature_size(tmp_path):
    """Reading once at 224 px changed the 64-px training views by 5 levels on average."""
    noise = np.random.default_rng(0).integers(0, 256, (900, 900, 3), dtype=np.uint8)
    for name in "ab":
        Image.fromarray(noise).save(tmp_path / f"{name}.jpg")
    data = ImageDataset(tmp_path, pirl.ImageViews(image_size=64), seed=1)
    data.set_epoch(0)
    before = data[0]["images"]
    for other in (data, ImageDataset(data.source, v2.CenterCrop(9))):
        other[1]
        pirl.extract_features(pirl.WideResNet(10, 0.25), other, size=224)
    data.set_epoch(0)
    assert torch.equal(data[0]["images"], before)


def test_normalize__names_default_collation_as_cause():
    batch = next(iter(DataLoader(ImageDataset(PHOTOS, CALLABLES["ours"]), 2)))
    with pytest.raises(ValueError, match="collate_fn=collate_views"):
        normalize_images(batch["patches"])
