"""``pirl-plugin prepare``: smaller copies, kept up to date."""

import io
import os

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.images import prepare, prepare_command
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
    options = ["--size", "20", "--quality", "83", "--workers", "0"]
    assert prepare_command.main([str(photos), str(tmp_path / "out"), *options]) == 0
    for number, ((width, height), (scale, copied)) in enumerate(COPIES.items()):
        expected = (photos / f"{number}.jpg").read_bytes()
        if copied != (width, height):
            image = Image.open(io.BytesIO(expected))
            image.draft("RGB", (width // scale, height // scale))
            file = io.BytesIO()
            image.resize(copied, Image.Resampling.LANCZOS).save(file, "JPEG", quality=83)
            expected = file.getvalue()
        assert (tmp_path / "out" / f"{number}.jpg").read_bytes() == expected, (width, height)


@pytest.mark.parametrize("kind", ["gray", "bands", "missing"])
def test_prepare__keeps_the_size_of_other_images(kind, tmp_path, capsys):
    """Of photos, only those with missing pixels, as interpolation would mix these with others."""
    (tmp_path / "in").mkdir()
    photo = np.full((40, 50, 3), 100, np.uint8)
    Image.fromarray(photo).save(tmp_path / "in" / "0.png")
    photo[:16, :16] = 0
    for number in (1, 2):
        file = tmp_path / "in" / f"{number}.png"
        if kind == "gray":
            Image.fromarray(photo[:, :, 0].astype(np.uint16)).save(file)
        elif kind == "bands":
            with file.open("wb") as opened:
                np.save(opened, np.zeros((40, 50, 30), np.uint16))
        else:
            Image.fromarray(photo).save(file)
    command = [str(tmp_path / "in"), str(tmp_path / "out"), "--size", "20", "--workers", "0"]
    assert prepare_command.main([*command, "--nodata", "0"]) == 0
    out = capsys.readouterr().out
    assert "3 images copied, 0 already there" in out
    assert "2 of these keep their size: only RGB with 8 bits" in out
    assert Image.open(tmp_path / "out" / "0.png").size == (25, 20)
    for name in ("1.png", "2.png"):
        copy = tmp_path / "out" / name
        assert copy.read_bytes() == (tmp_path / "in" / name).read_bytes()
