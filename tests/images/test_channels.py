"""Images with any number of channels, in uint8, uint16 and float32, in every format."""

import io
import struct
import sys
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset

from pirl_plugin.images.decode import UnreadableImageError
from pirl_plugin.images.image_dataset import ImageDataset
from pirl_plugin.images.opening import open_source
from pirl_plugin.images.reading import RGB, PixelType, Reading
from pirl_plugin.views.base import ImageViews
from tests.helpers.images import decode_image, save_gray
from tests.helpers.kinds import add_member

tifffile = pytest.importorskip("tifffile", reason="needs pip install pirl-plugin[tiff]")

VIEWS = ImageViews(image_size=8)
TYPES = [np.uint8, np.uint16, np.float32]


def bands(channels, dtype, seed=0, shape=(12, 10)):
    """Return an array (H, W, C)."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 250, (*shape, channels))
    return values.astype(dtype)


def tiff(array, **options):
    file = io.BytesIO()
    tifffile.imwrite(file, array, **options)
    return file.getvalue()


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def png(level):
    file = io.BytesIO()
    Image.new("RGB", (9, 9), (level,) * 3).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("planes", ["contig", "separate"])
def test_tiff__keeps_colors_and_inverts_white_is_zero(planes):
    array = bands(3, np.uint8)
    stored = array if planes == "contig" else array.transpose(2, 0, 1)
    content = tiff(stored, planarconfig=planes, photometric="rgb")
    np.testing.assert_array_equal(decode_image(content).permute(1, 2, 0), array)
    content = tiff(array[..., 0], photometric="miniswhite")
    np.testing.assert_array_equal(decode_image(content)[0], 255 - array[..., 0])


def test_tiff__keeps_fourth_band_unless_alpha():
    array = bands(4, np.uint8)
    content = tiff(array, photometric="rgb", extrasamples=["unspecified"])
    np.testing.assert_array_equal(decode_image(content).permute(1, 2, 0), array)
    transparent = tiff(array, photometric="rgb", extrasamples=["unassalpha"])
    np.testing.assert_array_equal(decode_image(transparent).permute(1, 2, 0), array[..., :3])


def test_tiff__without_tifffile_suggests_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(UnreadableImageError, match=r"pip install 'pirl-plugin\[tiff\]'"):
        decode_image(tiff(bands(5, np.uint8), photometric="minisblack"))


@pytest.mark.parametrize("content", ["npy", "tiff"])
def test_array__is_unreadable_if_damaged(content):
    write = npy if content == "npy" else lambda array: tiff(array, photometric="minisblack")
    whole = write(bands(5, np.uint16))
    for damaged in (whole[:40], whole[: len(whole) // 2]):
        with pytest.raises(UnreadableImageError):
            decode_image(damaged)
    with pytest.raises(UnreadableImageError):
        decode_image(npy(np.array([None, 1])))


def test_gray__keeps_16_bits():
    values = np.arange(20, dtype=np.uint16).reshape(4, 5) * 3000
    for kind in ("PNG", "TIFF"):
        file = io.BytesIO()
        Image.fromarray(values).save(file, kind)
        pixels = decode_image(file.getvalue())
        np.testing.assert_array_equal(pixels[0], values)
    assert decode_image(tiff(values, photometric="miniswhite"))[0, 0, 1] == 65535 - 3000


def deep_png(array):
    """Return a PNG of an RGB or RGBA array (H, W, C) in uint16, which PIL cannot write."""
    height, width, channels = array.shape
    header = struct.pack(">IIBBBBB", width, height, 16, {3: 2, 4: 6}[channels], 0, 0, 0)
    lines = b"".join(b"\0" + line.tobytes() for line in array.astype(">u2"))
    content = b"\x89PNG\r\n\x1a\n"
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")):
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        content += struct.pack(">I", len(data)) + kind + data + checksum
    return content


def test_rgb__keeps_16_bits():
    array = bands(4, np.uint16) * 16  # 12 bits
    rgb = np.ascontiguousarray(array[..., :3])
    for content in (deep_png(rgb), deep_png(array), tiff(rgb, photometric="rgb")):
        np.testing.assert_array_equal(decode_image(content).permute(1, 2, 0), rgb)
    with pytest.raises(UnreadableImageError, match="12 pixels: expected at most"):
        decode_image(deep_png(rgb), max_pixels=9)
    converted, _ = open_source([rgb]).load(0, 8, Reading(rgb=True))
    np.testing.assert_array_equal(converted.permute(1, 2, 0), np.round(rgb / 257))


def write_folder(root, arrays):
    for number, array in enumerate(arrays):
        folder = root / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.npy").write_bytes(npy(array))
    return root


def write_list(root, arrays):
    write_folder(root, arrays)
    paths = sorted(root.glob("*/*.npy"), key=lambda path: int(path.stem))
    (root / "list.txt").write_text("".join(f"{path} x\n" for path in paths))
    return root / "list.txt"


def write_tiffs(root, arrays):
    root.mkdir(exist_ok=True)
    for number, array in enumerate(arrays):
        content = tiff(array, photometric="minisblack", planarconfig="contig")
        (root / f"{number}.tif").write_bytes(content)
    return root


def write_tar(root, arrays):
    import tarfile

    root.mkdir(exist_ok=True)
    with tarfile.open(root / "a.tar", "w") as tar:
        for number, array in enumerate(arrays):
            add_member(tar, f"{number}.npy", npy(array))
    return root


HELD = {
    "arrays": lambda root, arrays: arrays,
    "tensors": lambda root, arrays: [torch.from_numpy(a).permute(2, 0, 1) for a in arrays],
    "pairs": lambda root, arrays: [(array, 3) for array in arrays],
    "joined": lambda root, arrays: ConcatDataset([arrays[:2], arrays[2:]]),
    "folder": write_folder,
    "list": write_list,
    "TIFFs": write_tiffs,
    "tar": write_tar,
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("held", HELD)
def test_dataset__has_the_most_common_channels(held, dtype, tmp_path, caplog):
    arrays = [bands(5, dtype, seed) for seed in range(5)]
    arrays[3] = bands(4, dtype)
    data = ImageDataset(HELD[held](tmp_path / "in", arrays), VIEWS)
    kind = PixelType(5, torch.from_numpy(arrays[0]).dtype)
    assert data.pixel_type == kind
    for row in range(5):
        pixels, is_readable = data.source.load(row, 8, data.reading)
        assert is_readable == (row != 3) or held == "folder"  # a folder sorts by class
        if held != "folder" and row != 3:
            np.testing.assert_array_equal(pixels.permute(1, 2, 0), arrays[row])
        assert data[row]["images"].shape == (5, 8, 8)
    assert len(data.source.unreadable_paths()) == 1
    name = str(kind.dtype).removeprefix("torch.")
    assert f"4 channels of {name}, but most images have 5 channels of {name}" in caplog.text


@pytest.mark.parametrize("column", ["array", "lists"])
def test_hugging_face__arrays_keep_channels_and_dtype(column):
    datasets = pytest.importorskip("datasets", reason="needs pip install pirl-plugin[hf]")
    arrays = np.stack([bands(5, np.uint16, seed) + 9000 for seed in range(3)])
    lists = datasets.List(datasets.List(datasets.List(datasets.Value("uint16"))))
    kinds = {"array": datasets.Array3D(arrays.shape[1:], "uint16"), "lists": lists}
    features = datasets.Features(image=kinds[column])
    source = open_source(datasets.Dataset.from_dict({"image": arrays.tolist()}, features))
    assert source.pixel_type == PixelType(5, torch.uint16)
    np.testing.assert_array_equal(source[2][0].permute(1, 2, 0), arrays[2])


def test_folder__stays_rgb_despite_arrays_beside_images(tmp_path):
    write_folder(tmp_path, [bands(5, np.uint8)] * 3)
    save_gray(tmp_path / "a" / "0.png", 9)
    source = open_source(tmp_path)
    assert (len(source), source.pixel_type) == (1, RGB)


@pytest.mark.parametrize("other", ["16-bit PNG", "4-band TIFF", "float TIFF"])
def test_mixed_folder__converts_only_on_request(other, tmp_path, caplog):
    """12-bit values used to turn black."""
    for number in range(3):
        Image.new("L", (5, 4), number).save(tmp_path / f"{number}.png")
    if other == "16-bit PNG":
        Image.fromarray(np.full((4, 5), 300, np.uint16)).save(tmp_path / "a.png")
    else:
        array = bands(4, np.uint8) if other == "4-band TIFF" else bands(1, np.float32)[..., 0]
        content = tiff(array, photometric="minisblack")
        (tmp_path / "a.tif").write_bytes(content)
    data = ImageDataset(tmp_path, VIEWS)
    assert data.pixel_type == RGB
    assert [data.source.load(row, 8, data.reading)[1] for row in range(4)] == [True] * 3 + [False]
    assert "/a." in caplog.text
    assert "but most images have 3 channels of uint8" in caplog.text
    caplog.clear()
    for _ in range(2):
        data = ImageDataset(tmp_path, VIEWS, rgb=True)
        readable = [data.source.load(row, 8, data.reading)[1] for row in range(4)]
        assert readable == [True] * 3 + [other != "float TIFF"]
    assert caplog.text.count("16-bit values are divided by 257, so that 65,535 becomes 255") == 1


def test_rgb__converts_only_on_request(tmp_path):
    deep = [np.full((9, 9, 1), 257 * level, np.uint16) for level in range(3)]
    data = ImageDataset(deep, VIEWS, rgb=True)
    assert data.pixel_type == RGB
    assert data[1]["images"].shape == (3, 8, 8)
    assert int(data.source.load(2, 8, Reading(rgb=True))[0][0, 0, 0]) == 2
    assert ImageDataset(deep, VIEWS)[1]["images"].shape == (1, 8, 8)


def test_statistics__are_per_channel():
    arrays = [bands(4, np.uint16, seed) for seed in range(6)]
    source = open_source(arrays)
    values = np.stack(arrays).reshape(-1, 4).astype(float)
    expected = [values.mean(0), values.std(0), values.min(0), values.max(0)]
    np.testing.assert_allclose(source.statistics(), expected)
    bytes_ = open_source([array.astype(np.uint8) for array in arrays])
    np.testing.assert_allclose(bytes_.statistics()[0], values.mean(0) / 255)
    constant = open_source([np.full((4, 4, 2), 5, np.float32)])
    assert constant.statistics() == ((5, 5), (1, 1), (5, 5), (5, 5))
    assert open_source([png(3)] * 2).statistics()[0][0] == 0.485


@pytest.mark.parametrize("dtype", TYPES)
def test_loop__trains_and_extracts_features_with_five_channels(dtype, caplog):
    import pirl_plugin as pirl

    arrays = [bands(5, dtype, seed, (60, 70)) for seed in range(8)]
    data = pirl.ImageDataset(arrays, pirl.JigsawViews(64, patches_crop_size=96, patch_size=24))
    assert "the views use flip_p=0.5, channel_jitter_p=0 (brightness=0.4" in caplog.text
    model = pirl.PIRL(pirl.WideResNet(10, 0.25, in_channels=5), data)
    model(pirl.collate_views([data[3], data[7]])).backward()
    model.update()
    config = model.trunk.network_config
    np.testing.assert_allclose(config.mean, data.source.statistics()[0])
    features, readable = pirl.extract_features(model.trunk, arrays, size=32)
    assert (tuple(features.shape), readable.all()) == ((8, 128), True)
    assert features.isfinite().all()
