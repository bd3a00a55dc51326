"""Folders: order, classes, links, and what is not read."""

import errno
import os
from contextlib import nullcontext

import pytest
from PIL import features

from pirl_plugin.images import formats
from pirl_plugin.images.sources import paths
from pirl_plugin.images.sources.folder import FolderSource
from pirl_plugin.images.sources.paths import find_images, some_images
from tests.helpers.images import save_grey

AVIF, JPEG_2000 = features.check("avif"), features.check("jpg_2000")


def test_folder__sorted_recursive_with_class_of_first_level(folder):
    source = FolderSource(folder)
    expected = ["a/x.webp", "a/y/9.bmp", "a/z/3.jpeg", "b/1.jpg", "b/2.PNG", "ä é/1.png"]
    assert source.paths() == [str(folder / name) for name in expected]
    assert source.labels().tolist() == [0, 0, 0, 1, 1, 3]  # 2 is the empty folder
    assert len(source) == 6
    assert source.class_root() == str(folder)


def test_folder__flat_is_one_class(tmp_path):
    for name in ("2.jpg", "1.jpg"):
        save_grey(tmp_path / name)
    source = FolderSource(tmp_path)
    assert source.labels().tolist() == [0, 0]
    assert source.paths() == [str(tmp_path / "1.jpg"), str(tmp_path / "2.jpg")]


def test_folder__of_both_splits_says_that_both_are_read(tmp_path, caplog):
    """Validation images were trained on, and the splits taken for classes, without a word."""
    for name in ("train/a/1.jpg", "train/b/2.jpg", "val/a/3.jpg"):
        save_grey(tmp_path / name)
    FolderSource(tmp_path / "train")
    assert not caplog.records
    assert len(FolderSource(tmp_path)) == 3
    assert "its subfolders are train and val, and images of both are read" in caplog.text


def test_folder__images_beside_the_folders_of_classes_have_none(folder):
    """They were class 0, and all others had another number than those of a folder without them."""
    save_grey(folder / "z.jpg")
    assert FolderSource(folder).labels().tolist() == [-1, 0, 0, 0, 1, 1, 3]
    with pytest.raises(
        ValueError, match=r"z\.jpg lies beside the folders of the classes: expected"
    ):
        paths.check_all_in_classes(folder)


def test_folder__survives_links_in_a_circle(folder):
    os.symlink(folder, folder / "a" / "up")
    os.symlink(folder, folder / "all")
    os.symlink(folder / "b", folder / "c")
    assert [os.path.basename(p) for p in FolderSource(folder).paths()].count("1.jpg") == 2


def test_folder__counts_a_link_to_itself_as_a_file(folder):
    """In the folder itself, not in that of a class, it ended the walk with a bare OSError."""
    expected = FolderSource(folder).paths()
    for name in ("loop", "loop.jpg", "b/loop.jpg"):
        os.symlink(os.path.basename(name), folder / name)
    links = [str(folder / name) for name in ("loop.jpg", "b/loop.jpg")]
    assert sorted(FolderSource(folder).paths()) == sorted(expected + links)
    assert links[0] in some_images(str(folder), 100)
    assert paths.class_folders(str(folder)) == ["a", "b", "empty", "ä é"]


@pytest.mark.parametrize(("number", "raised"), [(errno.EACCES, False), (errno.ESTALE, True)])
def test_folder__a_link_without_rights_is_a_file_and_one_that_failed_ends_the_walk(number, raised):
    class Link:
        def is_dir(self):
            raise OSError(number, os.strerror(number))

    with pytest.raises(OSError, match="Stale") if raised else nullcontext():
        assert not paths._is_folder(Link())


@pytest.mark.parametrize("written", ["{}/", "{}//", "{}/b/.."])
def test_folder__survives_links_below_a_path_written_otherwise(written, folder):
    """The walk up from a link missed the folder that it began in, and never ended."""
    os.symlink(folder / "b", folder / "a" / "link")
    assert list(find_images(written.format(folder))) == list(find_images(str(folder)))
    assert sorted(some_images(written.format(folder), 100)) == sorted(
        os.path.join(written.format(folder), name) for name in find_images(str(folder))
    )


def test_folder__survives_links_between_siblings(folder):
    """Two images became 82, and with one link more the walk did not end."""
    for link, target in (("a/u", "b"), ("a/v", "b"), ("b/w", "a")):
        os.symlink(folder / target, folder / link)
    names = [os.path.relpath(path, folder) for path in FolderSource(folder).paths()]
    assert [name for name in names if name.endswith("1.jpg")] == [
        "a/u/1.jpg",
        "a/v/1.jpg",
        "b/1.jpg",
    ]
    assert len(names) == len(set(names)) == 6 + 2 * 2 + 3


def test_folder__that_cannot_be_listed_is_named(folder, monkeypatch):
    """Its images were left out without a word."""
    scandir = os.scandir

    def stale(path):
        if str(path).endswith("/z"):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", stale)
    with pytest.raises(
        OSError, match=r"a/z cannot be listed \(Stale file handle\), and its images"
    ):
        FolderSource(folder)


def test_folder__of_files_asks_for_the_status_of_none(tmp_path, monkeypatch):
    """A flat folder of a million files on a network disk: the directory knows their types."""
    for number in range(5):
        (tmp_path / f"{number}.jpg").touch()

    def refuse(path):
        raise AssertionError(f"the status of {path} was asked for")

    monkeypatch.setattr(os.path, "isfile", refuse)
    monkeypatch.setattr(os, "stat", refuse)
    assert list(paths.find_images(str(tmp_path))) == [f"{n}.jpg" for n in range(5)]


def test_folder__of_files_counts_a_broken_link_as_an_image_that_cannot_be_read(tmp_path, caplog):
    """It was left out without a word, and in a class's folder it was not."""
    for name in ("a", "b"):
        save_grey(tmp_path / f"{name}.png")
    os.symlink(tmp_path / "nowhere", tmp_path / "c.png")
    assert [is_valid for _, is_valid in FolderSource(tmp_path)] == [True, True, False]
    assert "c.png: cannot be read: [Errno 2] No such file" in caplog.text


@pytest.mark.parametrize(
    ("suffix", "kind"),
    [
        ("jfif", "JPEG"),
        ("JPE", "JPEG"),
        pytest.param("avif", "AVIF", marks=pytest.mark.skipif(not AVIF, reason="PIL has no AVIF")),
        pytest.param(
            "jp2",
            "JPEG2000",
            marks=pytest.mark.skipif(not JPEG_2000, reason="PIL has no JPEG 2000"),
        ),
    ],
)
def test_folder__reads_what_the_decoders_here_read(suffix, kind, tmp_path, make_image):
    from PIL import Image

    make_image(tmp_path / "1.png", seed=0)
    Image.open(tmp_path / "1.png").save(tmp_path / f"2.{suffix}", kind)
    source = FolderSource(tmp_path)
    pixels, is_valid = source[1]
    assert is_valid
    assert pixels.shape == (3, 48, 48)
    assert (pixels.float() - source[0][0].float()).abs().mean() < 6  # lossy


def test_folder__names_by_kind_what_is_not_read(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(formats, "image_extensions", lambda: (".jpg",))
    monkeypatch.setattr(paths, "image_extensions", lambda: (".jpg",))
    names = ["1.jpg", "2.jpg", *(f"{n}.HEIC" for n in range(8)), "a.jp2", "bare", "x/b", "n.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with caplog.at_level("INFO"):
        assert len(FolderSource(tmp_path)) == 2
    said = [record.message.removeprefix(f"{tmp_path}: ") for record in caplog.records]
    assert said[:4] == [
        "2 files without an extension skipped: expected a name such as 1.jpg; rename those that "
        "are images",
        "8 .heic files skipped: no decoder here; pip install pillow-heif, or convert to JPEG or "
        "PNG",
        "1 .jp2 file skipped: no decoder here; convert to JPEG or PNG",
        "1 files that are no images skipped (.txt)",
    ]


def test_folder__of_unread_formats_alone_says_so_in_its_error(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "image_extensions", lambda: (".jpg",))
    for number in range(3):
        (tmp_path / f"{number}.heic").touch()
    with pytest.raises(ValueError, match=r"holds no image: expected a folder.*; 3 \.heic files"):
        FolderSource(tmp_path)


def test_folder__that_is_a_file_is_said_to_be_one(folder):
    """It was said not to exist."""
    with pytest.raises(FileNotFoundError, match=r"a/x\.webp is a file: expected a folder") as found:
        FolderSource(folder / "a" / "x.webp")
    assert "config" not in str(found.value)
