"""Folders and lists: order, labels, errors, unreadable files, epochs and pickling."""

import os
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.data.paths import PathTable
from pirl_plugin.data.source import PIRLDiskDataset, SourceImage


def config(transform="PIRLJigsaw", seed=0, **options):
    transforms = [{"name": transform}] if transform else []
    return {"SEED_VALUE": seed, "DATA": {"TRAIN": {"TRANSFORMS": transforms, **options}}}


def make(path, kind="pirl_disk_folder", **options):
    return PIRLDiskDataset(config(**options), kind, str(path), "TRAIN", "test")


def save(path, level=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 8), (level, level, level)).save(path)


@pytest.fixture
def folder(tmp_path):
    names = ["b/2.PNG", "b/1.jpg", "a/z/3.jpeg", "a/y/9.bmp", "a/x.webp", "ä é/1.png"]
    for level, name in enumerate(names):
        save(tmp_path / name, 10 * level)
    (tmp_path / "a" / "notes.txt").write_text("not an image")
    (tmp_path / "empty").mkdir()
    save(tmp_path / ".hidden" / "1.png")
    save(tmp_path / "a" / ".1.png")
    return tmp_path


def test_folder__sorted_recursive_with_class_of_first_level(folder):
    source = make(folder)
    expected = ["a/x.webp", "a/y/9.bmp", "a/z/3.jpeg", "b/1.jpg", "b/2.PNG", "ä é/1.png"]
    assert source.get_image_paths() == [str(folder / name) for name in expected]
    assert source.get_labels() == [0, 0, 0, 1, 1, 3]  # 2 is the empty folder
    assert len(source) == source.num_samples() == 6


def test_folder__flat_is_one_class(tmp_path):
    for name in ("2.jpg", "1.jpg"):
        save(tmp_path / name)
    source = make(tmp_path)
    assert source.get_labels() == [0, 0]
    assert source.get_image_paths() == [str(tmp_path / "1.jpg"), str(tmp_path / "2.jpg")]


def test_folder__survives_links_in_a_circle(folder):
    os.symlink(folder, folder / "a" / "up")
    os.symlink(folder / "b", folder / "c")
    assert [os.path.basename(p) for p in make(folder).get_image_paths()].count("1.jpg") == 2


def test_item__is_what_the_first_transform_takes(folder):
    image, valid = make(folder, seed=5)[4]
    assert valid
    assert isinstance(image, SourceImage)
    assert image.pixels.shape == (3, 8, 12)
    assert (image.seed, image.epoch) == (5, 0)
    pil, valid = make(folder, transform="RandomResizedCrop")[4]
    assert valid
    assert pil.mode == "RGB"
    assert pil.size == (12, 8)
    assert isinstance(make(folder, transform=None)[0][0], Image.Image)


def test_epoch__travels_to_the_workers(folder):
    source = make(folder)
    source.set_epoch(3)
    assert pickle.loads(pickle.dumps(source))[0][0].epoch == 3


@pytest.mark.parametrize("transform", ["PIRLJigsaw", "CenterCrop"])
def test_unreadable__is_grey_counted_and_named_once(folder, caplog, transform):
    (folder / "a" / "x.webp").write_bytes(b"")
    (folder / "b" / "1.jpg").write_bytes(b"no image")
    source = make(folder, transform=transform)
    (folder / "a" / "y" / "9.bmp").unlink()
    for index in (0, 1, 3, 0, 1, 2):
        image, valid = source[index]
        assert valid == (index == 2)
        if index != 2:
            grey = image.pixels if transform == "PIRLJigsaw" else torch.tensor(np.array(image))
            assert (grey == 128).all()
    assert source.num_unreadable == 3
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 3
    assert "x.webp: the file is empty (0 bytes)" in warnings[0]
    assert "No such file" in warnings[1]
    assert "cannot identify" in warnings[2]


def test_filelist__npy_is_mapped_and_not_pickled(folder):
    paths = [f"a/{n % 10}/x.webp" for n in range(5000)]
    paths[4999] = "a/x.webp"
    np.save(folder / "list.npy", np.array(paths))
    source = make(folder / "list.npy", "pirl_disk_filelist")
    assert len(source) == 5000
    sent = pickle.dumps(source)
    assert len(sent) < 5000 // 8 + 2000  # a bit an image says which were unreadable
    received = pickle.loads(sent)
    assert len(received) == 5000
    assert received[4999][1]
    assert not received[0][1]
    bytes_list = np.array([p.encode() for p in paths])
    np.save(folder / "list.npy", bytes_list)
    assert make(folder / "list.npy", "pirl_disk_filelist", MMAP_MODE=False)[4999][1]


def test_filelist__text_lines_are_relative_to_the_list(folder):
    (folder / "list.txt").write_text(f"\nb/1.jpg\n\n{folder}/a/x.webp\r\n  \n")
    source = make(folder / "list.txt", "pirl_disk_filelist")
    assert source.get_image_paths() == [str(folder / "b/1.jpg"), str(folder / "a/x.webp")]
    assert all(source[index][1] for index in range(2))
    assert source.get_labels() == [1, 0]  # of a, b, empty and ä é


def test_filelist__classes_are_those_of_the_folder(folder):
    """A list of some images gives them the classes that the whole folder does."""
    names = ["b/2.PNG", "ä é/1.png", "b/1.jpg"]
    (folder / "list.txt").write_text("\n".join(names))
    whole = make(folder)
    labels = dict(zip(whole.get_image_paths(), whole.get_labels(), strict=True))
    found = make(folder / "list.txt", "pirl_disk_filelist").get_labels()
    assert found == [labels[str(folder / name)] for name in names]
    assert make(folder / "list.txt", "pirl_disk_filelist").list_root() == str(folder)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["b/1.jpg", "a/z/3.jpeg"],
            r"list of paths in .* and .*/a; expected DIR/CLASS/IMAGE.*"
            r"LABEL_SOURCES=\[disk_filelist\]",
        ),
        (["b/1.jpg", "nowhere/1.jpg"], r"names images in .*/nowhere, which is not a folder"),
    ],
)
def test_filelist__whose_paths_tell_no_classes_is_refused(names, message, folder):
    (folder / "list.txt").write_text("\n".join(names))
    with pytest.raises(ValueError, match=message):
        make(folder / "list.txt", "pirl_disk_filelist").get_labels()


def test_filelist__replaces_the_prefix_once(folder):
    (folder / "list.txt").write_text("/old/old/1.jpg\n/other/1.jpg\n")
    options = {"REMOVE_IMG_PATH_PREFIX": "/old", "NEW_IMG_PATH_PREFIX": "/new"}
    source = make(folder / "list.txt", "pirl_disk_filelist", **options)
    assert source.get_image_paths() == ["/new/old/1.jpg", "/other/1.jpg"]


@pytest.mark.parametrize(
    ("name", "kind", "error", "words"),
    [
        ("nowhere", "pirl_disk_folder", FileNotFoundError, "not a folder that exists.*jpeg"),
        ("one.txt", "pirl_disk_folder", FileNotFoundError, "not a folder that exists"),
        ("nowhere", "pirl_disk_filelist", FileNotFoundError, "not a file that exists.*one path"),
        ("empty", "pirl_disk_folder", ValueError, "holds no image"),
        ("single", "pirl_disk_folder", ValueError, "1 image, and at least 2 are needed: point"),
        ("one.txt", "pirl_disk_filelist", ValueError, "holds 1 image"),
        ("none.txt", "pirl_disk_filelist", ValueError, "holds no image"),
        ("objects.npy", "pirl_disk_filelist", ValueError, "cannot be read.*dtype=str"),
        ("numbers.npy", "pirl_disk_filelist", ValueError, r"shape \(2, 2\) and type int64"),
        ("junk.npy", "pirl_disk_filelist", ValueError, "cannot be read"),
    ],
)
def test_errors__say_path_wanted_and_mend(tmp_path, name, kind, error, words):
    (tmp_path / "empty").mkdir()
    save(tmp_path / "single" / "1.jpg")
    (tmp_path / "one.txt").write_text("1.jpg\n")
    (tmp_path / "none.txt").write_text("\n\n")
    np.save(tmp_path / "objects.npy", np.array(["a", None], dtype=object), allow_pickle=True)
    np.save(tmp_path / "numbers.npy", np.zeros((2, 2), np.int64))
    (tmp_path / "junk.npy").write_bytes(b"\x93NUMPYjunk")
    with pytest.raises(error, match=words) as caught:
        make(tmp_path / name, kind)
    assert str(tmp_path / name) in str(caught.value)
    assert "config.DATA.TRAIN.DATA_PATHS=[DIR]" in str(caught.value)


def test_source__refuses_an_unknown_kind(tmp_path):
    with pytest.raises(ValueError, match="'disk_folder'; expected one of pirl_disk_folder, "):
        make(tmp_path, "disk_folder")


def test_path_table__round_trip():
    paths = ["", "a/b.jpg", "ä é/ü.png", os.fsdecode(b"\xff\xfe.jpg")]
    table = pickle.loads(pickle.dumps(PathTable(paths)))
    assert list(table) == paths
    assert table[-1] == paths[-1]
    with pytest.raises(IndexError, match="path 4 of 4"):
        table[4]
