"""``pirl-plugin prepare``: smaller copies, kept up to date."""

import io
import os

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.images import prepare, prepare_command
from pirl_plugin.images.decode import decode
from pirl_plugin.images.folders import FolderSource
from pirl_plugin.images.opening import open_source
from tests.helpers.images import encoded, save_gray


@pytest.fixture
def copied(tmp_path):
    """Return a function that prepares ``in`` and maps names to gray levels in the copy."""
    words = [str(tmp_path / "in"), str(tmp_path / "out"), "--workers", "0"]
    for number in range(6):
        save_gray(tmp_path / "in" / "cat" / f"{number}.png", 40 * number)

    def copy():
        assert prepare_command.main(words) == 0
        source = open_source(tmp_path / "out")
        levels = {source.name_of(row): int(source[row][0][0, 0, 0]) for row in range(len(source))}
        return {name.rpartition("/")[2].split(".")[0]: level for name, level in levels.items()}

    return copy


def test_prepare__updates_changed_and_reports_removed_images(copied, tmp_path, capsys):
    levels = {str(number): 40 * number for number in range(6)}
    assert copied() == levels
    capsys.readouterr()
    assert copied() == levels
    assert "0 images copied, 6 already there" in capsys.readouterr().out
    cat = tmp_path / "in" / "cat"
    os.utime(cat / "3.png", ns=(0, (cat / "2.png").stat().st_mtime_ns))
    save_gray(cat / "2.png", 7)
    (cat / "5.png").unlink()
    save_gray(cat / "00.png", 9)
    assert copied() == {**levels, "00": 9, "2": 7}
    lacks = f"has 1 image that {tmp_path / 'in'} lacks, such as cat/5.png. If"
    assert lacks in capsys.readouterr().out
    save_gray(cat / "2.png", 8, size=(600, 500))
    assert copied() == {**levels, "00": 9, "2": 8}
    copy = tmp_path / "out" / "cat" / "2.png"  # the copy keeps the name, so image lists still apply
    assert Image.open(copy).format == "JPEG"


def test_prepare__flushes_copies_and_their_names(copied, tmp_path, monkeypatch):
    flushed = set()
    monkeypatch.setattr(os, "fsync", lambda number: flushed.add(os.fstat(number).st_ino))
    copied()
    folder = tmp_path / "out" / "cat"
    assert {path.stat().st_ino for path in (folder, *folder.iterdir())} <= flushed


def test_prepare__names_broken_image_and_deletes_its_copy(copied, tmp_path, caplog):
    copied()
    (tmp_path / "in" / "cat" / "2.png").write_bytes(b"no image")
    assert "2" not in copied()
    assert "cat/2.png: it is not an image" in caplog.text


def test_prepare__keeps_copies_of_unreachable_images(tmp_path, monkeypatch):
    for number in range(3):
        save_gray(tmp_path / "in" / f"{number}.png", number)
    words = [str(tmp_path / "in"), str(tmp_path / "out"), "--workers", "0"]
    prepare_command.main(words)

    def fail(path):
        raise OSError(f"{path}: the mount is gone")

    monkeypatch.setattr(prepare, "read_file", fail)
    for number in range(3):
        os.utime(tmp_path / "in" / f"{number}.png", (1, 1))
    assert prepare_command.main(words) == 1
    assert len(list((tmp_path / "out").glob("*.png"))) == 3


def test_prepare__deletes_nothing_without_record(tmp_path):
    save_gray(tmp_path / "in" / "1.png")
    save_gray(tmp_path / "out" / "mine.png")
    with pytest.raises(ValueError, match=r"did not write\. Choose a new or empty"):
        prepare_command.main([str(tmp_path / "in"), str(tmp_path / "out"), "--workers", "0"])
    assert (tmp_path / "out" / "mine.png").is_file()


def test_prepare__refuses_single_file(tmp_path):
    save_gray(tmp_path / "1.png")
    with pytest.raises(ValueError, match=r"1\.png is a file, not a folder"):
        prepare_command.main([str(tmp_path / "1.png"), str(tmp_path / "out")])


def test_prepare__copies_and_continues(animals, tmp_path, make_image, capsys):
    make_image(animals / "cat" / "0.png", 0, 90)
    out = tmp_path / "out"
    command = [str(animals), str(out), "--size", "60", "--workers", "1"]
    assert prepare_command.main(command) == 0
    assert "4 images copied, 0 already there, 1 failed" in capsys.readouterr().out
    source = open_source(out)
    assert source.labels().tolist() == [0, 0, 1, 1]
    assert source[0][0].shape == (3, 60, 60)
    assert torch.equal(source[1][0], FolderSource(animals)[1][0])
    for copy in list((out / "cat").iterdir()):
        copy.unlink()
    assert prepare_command.main(command) == 0
    assert "2 images copied, 2 already there" in capsys.readouterr().out
    with pytest.raises(ValueError, match="size 60 \\(now 61\\)"):
        prepare_command.main([*command[:2], "--size", "61"])


# 20-px copies: JPEG (width, height) -> decoding scale, copied (width, height).
COPIES = {
    (27, 20): (1, (27, 20)),
    (27, 21): (1, (26, 20)),
    (21, 28): (1, (20, 27)),
    (83, 79): (1, (21, 20)),
    (93, 80): (2, (24, 20)),
    (80, 93): (2, (20, 24)),
    (175, 159): (2, (22, 20)),
    (173, 160): (4, (22, 20)),
    (160, 173): (4, (20, 22)),
    (401, 319): (4, (25, 20)),
    (401, 323): (8, (25, 20)),
}


def test_prepare__decodes_at_double_size_or_more(tmp_path):
    """The bytes match PIL's own reduced decoding, filter and quality."""
    photos = tmp_path / "in"
    photos.mkdir()
    for number, size in enumerate(COPIES):
        (photos / f"{number}.jpg").write_bytes(encoded("JPEG", size=size))
    options = ["--size", "20", "--workers", "0"]
    assert prepare_command.main([str(photos), str(tmp_path / "out"), *options]) == 0
    for number, ((width, height), (scale, copied)) in enumerate(COPIES.items()):
        expected = (photos / f"{number}.jpg").read_bytes()
        if copied != (width, height):
            image = Image.open(io.BytesIO(expected))
            image.draft("RGB", (width // scale, height // scale))
            file = io.BytesIO()
            image.resize(copied, Image.Resampling.LANCZOS).save(file, "JPEG", quality=90)
            expected = file.getvalue()
        assert (tmp_path / "out" / f"{number}.jpg").read_bytes() == expected, (width, height)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.float32])
@pytest.mark.parametrize("channels", [1, 5])
@pytest.mark.parametrize("kind", ["npy", "value", "tag"])
def test_prepare__shrinks_any_channels_and_keeps_missing_pixels(kind, channels, dtype, tmp_path):
    if (kind, channels, dtype) == ("tag", 1, np.uint8):
        pytest.skip("such an image is read as RGB")
    (tmp_path / "in").mkdir()
    array = np.full((40, 50, channels), 100, dtype)
    array[:20, :, -1] = 50
    nodata = 7
    array[:16, :16, 0] = nodata
    file = tmp_path / "in" / ("1.tif" if kind == "tag" else "1.npy")
    if kind == "tag":
        tifffile = pytest.importorskip("tifffile", reason="needs pip install pirl-plugin[tiff]")
        tag = (42113, "s", 0, str(nodata), True)
        bands = np.moveaxis(array, -1, 0)
        tifffile.imwrite(file, bands, photometric="minisblack", extratags=[tag])
    else:
        np.save(file, array)
    command = [str(tmp_path / "in"), str(tmp_path / "out"), "--size", "20", "--workers", "0"]
    if kind == "value":
        command += ["--nodata", str(nodata)]
    assert prepare_command.main(command) == 0
    read = []
    for folder in ("in", "out"):
        image = decode((tmp_path / folder / file.name).read_bytes())
        read.append((image.pixels, image.missing(nodata if kind == "value" else None)))
    (before, _), (pixels, missing) = read
    assert pixels.shape == (channels, 20, 25)
    assert pixels.dtype == before.dtype
    assert pixels[-1, 1, 20] == 50
    assert pixels[-1, 18, 20] == 100
    if kind != "npy":
        expected = np.zeros((channels, 20, 25), bool)
        expected[0, :8, :8] = True
        np.testing.assert_array_equal(missing, expected)
        valid = pixels.numpy()[~missing]
        assert (valid.min(), valid.max()) == (50, 100)


def test_prepare__keeps_missing_pixels_of_photos_as_arrays(tmp_path):
    (tmp_path / "in").mkdir()
    photo = np.full((40, 50, 3), 100, np.uint8)
    photo[:16, :16] = 0
    Image.fromarray(photo).save(tmp_path / "in" / "1.png")
    command = [str(tmp_path / "in"), str(tmp_path / "out"), "--size", "20", "--workers", "0"]
    assert prepare_command.main([*command, "--nodata", "0"]) == 0
    image = decode((tmp_path / "out" / "1.png").read_bytes())
    assert image.pixels.unique().tolist() == [0, 100]
    assert image.missing(0).sum() == 3 * 8 * 8


def test_prepare__names_the_axes_if_there_are_more_channels_than_pixels(tmp_path):
    pytest.importorskip("tifffile", reason="needs pip install pirl-plugin[tiff]")
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "1.npy", np.zeros((40, 50, 30), np.uint16))
    command = [str(tmp_path / "in"), str(tmp_path / "out"), "--size", "20", "--workers", "0"]
    assert prepare_command.main(command) == 0
    copy = decode((tmp_path / "out" / "1.npy").read_bytes())
    assert copy.pixels.shape == (30, 20, 25)
    assert copy.nodata is None
