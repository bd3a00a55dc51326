"""What sources skip, count, refuse or infer: folders, lists, tables, tars, data sets."""

import os
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, IterableDataset, Subset
from torchvision.datasets import ImageFolder

from pirl_plugin.images import prepare_command
from pirl_plugin.images.folders import FolderSource, find_splits, warn_skipped
from pirl_plugin.images.image_dataset import ImageDataset, collate_views
from pirl_plugin.images.names import DISK_FOLDER
from pirl_plugin.images.opening import open_named, open_source
from pirl_plugin.views.jigsaw import JigsawViews
from tests.helpers.images import save_gray
from tests.helpers.kinds import KINDS, gray, path_of, write_kind


def test_image_folder__ignores_other_files(folder):
    """A single mask tar or feature table used to be read instead of all classes."""
    for name in ("masks.tar", "masks.tar.gz", "features.parquet", "index.npz"):
        (folder / name).touch()
        (folder / "a" / name).touch()
    for place, labels in ((folder, [0, 1]), (folder / "a", None)):
        images = ImageDataset(place, JigsawViews())
        assert isinstance(images.source, FolderSource)
        found = images.labels()
        assert (found if found is None else found.tolist()) == labels


def test_system_folder__is_not_a_class(folder, caplog, subtests):
    for name in (
        "#recycle",
        "@Recycle",
        "@eaDir",
        "@tmp",
        "$RECYCLE.BIN",
        "~snapshot",
        "lost+found",
        "__MACOSX",
        "System Volume Information",
    ):
        with subtests.test(name=name):
            save_gray(folder / name / "3.png", 3)
            assert FolderSource(folder).labels().tolist() == [0, 1]
            assert f"{name}/ (1)" in caplog.text


def test_skipped_heic__names_package_to_install():
    counts = warn_skipped("photos", Counter({".heic": 2}))
    assert counts == ".heic (2); to read HEIC, pip install pillow-heif"


CONVERTERS = {
    "scan.dcm": "pydicom", "scan.nii": "nibabel", "scan.nii.gz": "nibabel", "scan.H5": "h5py",
    "scan.hdf5": "h5py", "slide.svs": "openslide", "cells.czi": "czifile", "cells.nd2": "nd2",
}  # fmt: skip


@pytest.mark.parametrize("name", CONVERTERS)
def test_scientific_formats__are_refused_with_a_converter(name, tmp_path):
    (tmp_path / name).touch()
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(ValueError, match=f"to .npy or .tif, use {CONVERTERS[name]}"):
            open_source(path)


def test_folder__counts_unlabeled_images(folder, caplog):
    save_gray(folder / "0.png")
    assert FolderSource(folder).labels().tolist() == [-1, 0, 1]
    assert "1 of 3 images are unlabeled" in caplog.text


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (("train", "val"), ("train", "val")),
        (("Train", "VALIDATION"), ("Train", "VALIDATION")),
        (("train", "valid", "test"), ("train", "valid")),
        (("train", "test", ".git"), ("train", "test")),
        (("train", "bus", "car"), None),  # a class named train
        (("cats", "dogs"), None),
    ],
)
def test_find_splits__recognizes_folders_of_public_datasets(names, splits, tmp_path):
    for name in names:
        (tmp_path / name).mkdir()
    expected = splits and tuple(tmp_path / name for name in splits)
    assert find_splits(tmp_path) == expected


def test_folder_with_splits__is_refused_but_copied_by_prepare(tmp_path, capsys):
    for split in ("Train", "valid"):
        save_gray(tmp_path / "in" / split / "cat" / "a" / "1.png")
    with pytest.raises(ValueError, match=r"holds Train and valid\. Pass one, such as .*/in/Train"):
        open_source(tmp_path / "in")
    assert (
        prepare_command.main([str(tmp_path / "in"), str(tmp_path / "out"), "--workers", "0"]) == 0
    )
    assert (tmp_path / "out" / "valid" / "cat" / "a" / "1.png").is_file()


def test_disk_folder__names_other_formats(tmp_path):
    """Without an overlay a run expects a folder; it used to deny that an existing list exists."""
    (tmp_path / "a.csv").touch()
    with pytest.raises(ValueError, match=r"a\.csv is a file.* pirl_disk_filelist"):
        open_named(DISK_FOLDER, tmp_path / "a.csv")
    for name in ("b.tar", "c.parquet", "d.zip"):
        path = tmp_path / "data" / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        with pytest.raises(ValueError, match=rf"contains no images, only .*\{path.suffix} \(1\)"):
            open_named(DISK_FOLDER, path.parent)


class Items(list):
    """A list with one raising item."""

    def __getitem__(self, row):
        if row == 1:
            raise ZeroDivisionError("by hand")
        return super().__getitem__(row)


def test_bad_items__are_counted_by_row(caplog):
    image = torch.zeros(3, 9, 9, dtype=torch.uint8)
    source = open_source(Items([image, image, None, ("x", 3), {"image": None}, image.float()]))
    assert [source[row][1] for row in range(6)] == [True, *[False] * 5]
    assert source.unreadable_paths() == [f"Items[{row}]" for row in range(1, 6)]
    assert "Skipped unreadable image 1, Items[1]: ZeroDivisionError" in caplog.text


def test_empty_images__are_masked_and_counted():
    whole = torch.zeros(3, 9, 9, dtype=torch.uint8)
    items = [whole, whole[:, :0], whole[:, :, :0], np.zeros((0, 9, 3), np.uint8), whole]
    images = ImageDataset(items, JigsawViews(image_size=8))
    batch = collate_views([images[row] for row in range(5)])
    assert batch["index"].tolist() == [0, -1, -1, -1, 4]
    assert len(images.source.unreadable_paths()) == 3


def test_labels__are_read_through_subset_and_concat(folder):
    images = ImageFolder(folder)
    assert open_source(images.samples)[1][1]  # (path, class)
    assert open_source(images).labels().tolist() == [0, 1]
    joined = ConcatDataset([Subset(images, [1, 0]), images])
    assert open_source(joined).labels().tolist() == [1, 0, 0, 1]
    with pytest.raises(ValueError, match="no labels"):
        open_source([1, 2]).labels()


class Stream(IterableDataset):
    """An empty iterable data set."""

    def __iter__(self):
        """Yield nothing."""
        yield from ()


@pytest.mark.parametrize("stream", [Stream(), iter([1, 2])])
def test_streams__are_refused(stream):
    with pytest.raises(ValueError, match=r"expected a map-style data set, with len\(data\)"):
        open_source(stream)


def test_open__refuses_pipes_without_waiting(tmp_path):
    (tmp_path / "tars").mkdir()
    for pipe, opened in (("list.txt", "list.txt"), ("tars/0.tar", "tars")):
        os.mkfifo(tmp_path / pipe)
        with pytest.raises((OSError, ValueError), match="is not a regular file"):
            open_source(tmp_path / opened)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["a[1]", "a?{b,c}"])
def test_folder__name_is_not_a_glob_pattern(name, kind, tmp_path):
    root = write_kind(kind, tmp_path / name, {"train": [("a", gray(1)), ("b", gray(2))]})
    path = path_of(kind, root, "train")
    source = open_source(next(root.glob("*/*.parquet")) if kind == "parquet" else path)
    assert (source.classes, source[1][0].unique().tolist()) == (["a", "b"], [2])
