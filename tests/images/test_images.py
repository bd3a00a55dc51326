"""Decoding, sources, the data set, its batches, and smaller copies."""

import io
import json
import logging
import os

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Subset
from torchvision.datasets import ImageFolder
from torchvision.transforms.v2 import CenterCrop

from pirl_plugin.images import names
from pirl_plugin.images.columns import Columns
from pirl_plugin.images.decode import UnreadableImageError
from pirl_plugin.images.folders import FolderSource, find_images
from pirl_plugin.images.image_dataset import ImageDataset, collate_views
from pirl_plugin.images.opening import open_named, open_source
from pirl_plugin.views.base import ImageViews
from pirl_plugin.views.jigsaw import JigsawViews
from pirl_plugin.views.pixels import image_generator
from pirl_plugin.views.rotation import RotationTask
from tests.helpers.images import decode_image, encoded

VIEWS = ImageViews(image_size=16)


def test_decode__matches_pil(subtests):
    for kind, mode in (
        ("JPEG", "RGB"),
        ("JPEG", "L"),
        ("JPEG", "CMYK"),
        ("PNG", "RGBA"),
        ("GIF", "P"),
    ):
        with subtests.test(kind=kind, mode=mode):
            data = encoded(kind, mode)
            expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
            np.testing.assert_array_equal(decode_image(data).permute(1, 2, 0), expected)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_decode__applies_exif_orientation(kind):
    undone = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}  # PIL's transposition numbers
    plain = Image.open(io.BytesIO(encoded(kind)))
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        pixels = decode_image(encoded(kind, exif=exif.tobytes()))
        expected = plain.transpose(undone[orientation]) if orientation > 1 else plain
        np.testing.assert_array_equal(
            pixels.permute(1, 2, 0), np.asarray(expected), err_msg=f"orientation {orientation}"
        )


def test_decode__finds_orientation_after_xmp():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded("JPEG", exif=exif.tobytes())
    xmp = b"http://ns.adobe.com/xap/1.0/\0<x/>"
    segment = b"\xff\xe1" + (len(xmp) + 2).to_bytes(2, "big") + xmp
    turned = decode_image(data[:2] + segment + data[2:])
    assert torch.equal(turned, decode_image(data))
    damaged = encoded("JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert torch.equal(decode_image(damaged), decode_image(encoded("JPEG")))


def test_decode__reads_bmp_resembling_a_jpeg_header():
    data = bytearray(encoded("BMP"))
    data[54:54] = bytes(256)  # pixels start at byte 310
    data[2:14] = (
        b"\0\xc0\0\0\0\0\x10\0\x36\x01\0\0"  # JPEG frame header for 16 × 54 pixels, without 0xFF
    )
    assert torch.equal(decode_image(data), decode_image(encoded("BMP")))


# At sizes where one pixel changes the scale: the smallest of 1, 1/2, 1/4 and 1/8 size that
# leaves ``side`` pixels to the shorter side. libjpeg rounds up: 79 / 2 = 40.
SCALED = {
    # side, (width, height): (width, height)
    (20, (47, 39)): (47, 39),
    (20, (47, 40)): (24, 20),
    (20, (40, 47)): (20, 24),
    (20, (91, 79)): (46, 40),
    (20, (91, 80)): (23, 20),
    (20, (160, 179)): (20, 23),
    (20, (900, 323)): (113, 41),
    (21, (47, 41)): (47, 41),
    (21, (43, 42)): (22, 21),
    (None, (1601, 1499)): (1601, 1499),
    (None, (1500, 1601)): (750, 801),
}


def test_decode__scales_large_jpeg_down_to_the_side():
    """torchvision decodes at full size; PIL decodes the scaled sizes, and CMYK always."""
    for mode in ("RGB", "CMYK"):
        for (side, size), expected in SCALED.items():
            height, width = decode_image(encoded("JPEG", mode, size), side).shape[1:]
            assert (width, height) == expected, (mode, side, size)


def test_decode__applies_pixel_limit_to_decoded_size():
    data = encoded("JPEG", size=(91, 80))
    assert decode_image(data, 20, max_pixels=23 * 20).shape == (3, 20, 23)
    with pytest.raises(UnreadableImageError, match="23 × 20 pixels: expected at most"):
        decode_image(data, 20, max_pixels=23 * 20 - 1)
    assert decode_image(data, 80, max_pixels=91 * 80).shape == (3, 80, 91)
    with pytest.raises(UnreadableImageError, match="91 × 80 pixels: expected at most"):
        decode_image(data, 80, max_pixels=91 * 80 - 1)


def test_images__are_decoded_at_the_size_views_need(tmp_path, monkeypatch):
    """In proportion to 750 px for 224-px views: 214 for 64, 753 for 225, 1500 for 448."""
    for name in ("0.jpg", "1.jpg"):
        (tmp_path / name).write_bytes(encoded("JPEG", size=(3001, 3000)))
    for views, side in (
        (ImageViews(image_size=64), 375),
        (ImageViews(image_size=224), 750),
        (ImageViews(image_size=225), 1500),
        (ImageViews(image_size=448), 1500),
        (ImageViews(image_size=449), 3000),
        (
            ImageViews(image_size=224, image_scale=(0.02, 1.0)),
            1500,
        ),  # crops have half the side length
        (ImageViews(image_size=224, image_scale=(0.2, 1.0)), 750),
        (JigsawViews(image_size=224), 750),
        (JigsawViews(image_size=224, patches_crop_size=620), 1500),  # 620 √(0.08 / 0.6) = 226
        (CenterCrop(500), 3000),  # a custom function gets the original image
    ):
        shapes = []
        load = FolderSource.load

        def loaded(source, *arguments, load=load, shapes=shapes):
            pixels, is_readable = load(source, *arguments)
            shapes.append(pixels.shape[1])
            return pixels, is_readable

        monkeypatch.setattr(FolderSource, "load", loaded)
        ImageDataset(tmp_path, views)[0]
        monkeypatch.undo()
        assert shapes == [side], (views, side)


def test_decode__raises_one_error_type(subtests):
    for data in (b"", b"no image", encoded("JPEG")[:400], encoded("PNG")[:80], b"\xff\xd8\xff\xe0"):
        with subtests.test(size=len(data)), pytest.raises(UnreadableImageError):
            decode_image(data)


def test_find_images__uses_torchvision_order(animals, make_image, caplog, monkeypatch):
    for name in (".hidden", "lost+found", "@eaDir", "__MACOSX"):
        (animals / name).mkdir()
        make_image(animals / name / "x.png", 9)
    (animals / "shut").mkdir()
    (animals / "cat" / "again").symlink_to("..")  # would repeat all images 40 times
    (animals / "itself").symlink_to("itself")
    for name in ("a.cr2", "b.CR2"):
        (animals / "cat" / name).touch()
    listed = os.scandir

    def scandir(path):
        if os.path.basename(path) == "shut":  # because root can list every animals
            raise PermissionError(path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = list(find_images(str(animals)))
    assert found == ["cat/0.png", "cat/1.jpg", "dog/2.png", "dog/3.png", "dog/4.jpg"]
    for _ in range(2):
        assert FolderSource(animals).labels().tolist() == [0, 0, 1, 1, 1]
    (line,) = caplog.messages
    for part in ("lost+found/ (1)", "shut/ (1)", "again/ (1)", ".cr2 (2)", "no extension (1)"):
        assert part in line


def test_find_images__ends_at_links_that_lead_back(animals):
    (animals / "cat" / "x").symlink_to(animals / "dog")
    (animals / "dog" / "y").symlink_to(animals / "cat")
    assert len(list(find_images(str(animals)))) == 2 * 5  # each class, and the other one in it


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_unreadable__is_named_once_counted_and_masked(method, animals, caplog):
    images = ImageDataset(animals, VIEWS)
    options = {"num_workers": 1, "multiprocessing_context": method}
    loader = DataLoader(images, 5, collate_fn=collate_views, persistent_workers=True, **options)
    for _ in range(2):
        (batch,) = loader
        assert batch["index"].tolist() == [0, 1, 2, 3, -1]
        assert batch["data_valid"].tolist() == [True] * 4 + [False]
    assert images.source.unreadable_paths() == [str(animals / "dog" / "4.jpg")]
    with caplog.at_level(logging.WARNING):
        assert not images[4]["data_valid"]
    assert "4.jpg" not in caplog.text  # a worker already named it


def test_views__are_keyed_by_epoch_or_new_each_time(animals):
    images = ImageDataset(animals, VIEWS, seed=5)
    assert not torch.equal(images[0]["images"], images[0]["images"])
    loader = DataLoader(images, 5, num_workers=1, persistent_workers=True, collate_fn=collate_views)
    first, second = next(iter(loader)), next(iter(loader))
    assert not torch.equal(first["images"], second["images"])
    images.set_epoch(3)  # running workers see the new epoch
    third = next(iter(loader))
    expected = VIEWS(images.source[2][0], image_generator(5, 3, 2))
    assert torch.equal(third["images"][2], expected["images"])


def test_image_dataset__accepts_any_image_dataset(animals):
    (animals / "dog" / "4.jpg").unlink()
    tensors = [torch.full((3, 20, 30), k, dtype=torch.uint8) for k in range(4)]
    paths = sorted(map(str, animals.glob("*/*")))
    joined = ConcatDataset([ImageFolder(animals), Subset(ImageFolder(animals), [3, 1])])
    for given, count in (
        (tensors, 4), ([{"pixels": t, "label": 1} for t in tensors], 4), (joined, 6), (paths, 4),
    ):  # fmt: skip
        images = ImageDataset(given, VIEWS)
        assert [images[row]["index"] for row in range(len(images))] == list(range(count))
        assert all(images[row]["data_valid"] for row in range(count))
    assert ImageDataset([(1, t) for t in tensors], VIEWS)[3]["data_valid"]
    with pytest.raises(ValueError, match=r"None of 2 .* nowhere/0\.jpg: .* No such file"):
        ImageDataset(["nowhere/0.jpg", "nowhere/1.jpg"], VIEWS)
    for key, items in (
        (1, [(1, tensors[1])] * 2),
        ("b", [{"image": 0, "b": tensors[1]}] * 2),
    ):
        assert open_source(items, columns=Columns(key))[0][0].unique().tolist() == [1]
        assert ImageDataset(items, VIEWS, image_column=key)[0]["data_valid"]


def test_collate__joins_patches_labels_and_other_keys():
    pixels = [torch.full((3, 60, 80), k, dtype=torch.uint8) for k in range(3)]
    samples = [{**JigsawViews(image_size=16)(p), "__key__": "a"} for p in pixels]
    batch = collate_views(samples)
    assert batch["patches"].shape == (27, 3, 5, 5)
    assert torch.equal(batch["patches"][9:18], samples[1]["patches"])
    assert batch["__key__"] == ["a"] * 3
    turned = collate_views([ImageDataset(pixels, RotationTask(16))[row] for row in range(3)])
    assert set(turned["label"].tolist()) <= {0, 1, 2, 3}
    assert turned["index"].tolist() == [0, 1, 2]
    views, classes = collate_views([(sample, 5) for sample in samples])  # as from ImageFolder
    assert (len(views["patches"]), classes.tolist()) == (27, [5, 5, 5])


def test_voc_and_inaturalist__are_read(tmp_path, make_image):
    lists = tmp_path / "ImageSets" / "Main"
    for folder in (lists, tmp_path / "JPEGImages"):
        folder.mkdir(parents=True)
    for number, name in enumerate("ab"):
        make_image(tmp_path / "JPEGImages" / f"{name}.jpg", number)
    (lists / "cat_trainval.txt").write_text("b  1\na -1\n")
    (lists / "dog_trainval.txt").write_text("a  0\nb -1\n")
    (lists / "cat_test.txt").write_text("b  1\n")
    for split, classes in (("train", {"a": 6, "b": 8}), ("val", {"b": 3})):
        rows = {name: {"id": id(name), "file_name": f"JPEGImages/{name}.jpg"} for name in classes}
        labels = [{"image_id": id(name), "category_id": classes[name]} for name in reversed(rows)]
        content = {"images": [*rows.values()], "annotations": labels}
        (tmp_path / f"{split}2018.json").write_text(json.dumps(content))
    images = dict(zip("ab", FolderSource(tmp_path / "JPEGImages"), strict=True))
    for name, split, shown, labels in (
        (names.DISK_VOC07, "train", "ab", [[0, -1], [1, 0]]),
        (names.DISK_VOC07, "test", "b", [[1]]),
        (names.DISK_INATURALIST18, "train", "ab", [6, 8]),
        (names.DISK_INATURALIST18, "test", "b", [3]),
    ):
        source = open_named(name, tmp_path, split=split)
        assert source.labels().tolist() == labels
        for (pixels, is_readable), expected in zip(source, shown, strict=True):
            assert is_readable
            assert torch.equal(pixels, images[expected][0])
