"""Class names in every format: which labels count as classes, and in which order."""

import io
import unicodedata

import numpy as np
import pytest
from torch.utils.data import ConcatDataset, Subset
from torchvision.datasets import CIFAR10, ImageFolder

from pirl_plugin.images.classes import MISSING_VALUES, NoLabels, join_classes, name_classes
from pirl_plugin.images.columns import Columns
from pirl_plugin.images.image_dataset import ImageDataset
from pirl_plugin.images.labeled import open_labeled
from pirl_plugin.images.opening import open_source
from pirl_plugin.system.console import warn_once
from pirl_plugin.views.base import ImageViews
from tests.helpers.kinds import KINDS, gray, in_memory, open_kind, path_of, write_kind

TRAIN = ["cat", "ant", None, "bee", "cat"]
TEST = [None, "cat", "ant", "cat"]


@pytest.fixture(autouse=True)
def _each_test_warns():
    warn_once.cache_clear()


def images(labels, first_level=0):
    return [(label, gray(first_level + number)) for number, label in enumerate(labels)]


def names_by_level(source, labels, names):
    """Map each image's gray level to its class name."""
    names = [*names, None]
    return {int(source[row][0][0, 0, 0]): names[labels[row]] for row in range(len(source))}


@pytest.mark.parametrize("kind", KINDS)
def test_classes__are_joined_by_name_in_every_format(kind, tmp_path, caplog):
    root = write_kind(kind, tmp_path, {"train": images(TRAIN), "test": images(TEST, 100)})
    data = open_kind(kind, root, "train", "test")
    assert data.classes == ["ant", "bee", "cat"]
    assert names_by_level(data.train, data.train_labels, data.classes) == dict(enumerate(TRAIN))
    of_test = names_by_level(data.test, data.test_labels, data.classes)
    assert of_test == {100 + number: label for number, label in enumerate(TEST)}
    assert "1 of 5 images are unlabeled" in caplog.text
    assert "1 of 4 images are unlabeled" in caplog.text


def test_classes__of_in_memory_dataset_match_labels():
    source = open_source(in_memory(images(TRAIN)))
    assert names_by_level(source, source.labels(), source.classes) == dict(enumerate(TRAIN))


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["203456790", "203456789", "987654321"], ["203456789", "203456790", "987654321"]),
        (["10", "9", "1", "01"], ["01", "1", "9", "10"]),
        (["10", "9", "x"], ["10", "9", "x"]),
        ([True, False], ["False", "True"]),
        ([np.int32(3), 11, 2], ["2", "3", "11"]),
        ([" cat", "cat "], ["cat"]),
        (["none", "NA", "null", "nan", "n/a"], ["NA", "n/a", "nan", "none", "null"]),
        ([unicodedata.normalize("NFD", "é"), "é"], ["é"]),
        (["", " ", "-1", "-2", -1, None, float("nan"), np.float64("nan"), "a"], ["a"]),
    ],
)
def test_names__keep_the_text_as_written(labels, names):
    classes = name_classes(labels)
    assert classes.names == names
    assert (classes.indices[-1] >= 0) == bool(names)


ODD = ["-1", "<na>", "NA", "None", "nan", "none", "null"]


def test_folder_names__are_classes_even_if_odd(tmp_path):
    """16 images in 4 classes were read as 8 images in 2 classes."""
    root = write_kind("folder", tmp_path, {"train": images(ODD), "val": images(ODD)})
    folders = ImageFolder(root / "train")
    for source in (
        open_source(root / "train"),
        open_source(folders),
        open_source(Subset(folders, range(len(ODD)))),
        open_source(ConcatDataset([folders, folders])),
    ):
        assert source.classes == sorted(ODD)
        assert source.labels()[: len(ODD)].tolist() == list(range(len(ODD)))
    data = open_labeled(root)
    assert names_by_level(data.test, data.test_labels, data.classes) == dict(enumerate(ODD))


def test_tar_and_class_label_names__may_look_like_missing_values(tmp_path):
    import datasets

    rows = images(["none", "NA", "cat", "none"])
    root = write_kind("tars", tmp_path, {"train": rows})
    kind = datasets.ClassLabel(names=["none", "NA", "cat"])
    source = open_source(in_memory(rows).cast_column("label", kind))
    for each in (open_source(root / "train"), source):
        assert each.classes == ["NA", "cat", "none"]
        assert (each.labels() >= 0).all()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_missing_value_cells__are_unlabeled(kind, tmp_path):
    cells = ["none", "NA", "null", "NaN", "N/A", "cat", "dog"]
    root = write_kind(kind, tmp_path, {"train": images(cells)})
    train = open_source(path_of(kind, root, "train"))
    assert train.classes == ["cat", "dog"]
    assert train.labels().tolist() == [-1] * 5 + [0, 1]


def test_folder_names__are_in_torchvision_order(tmp_path):
    root = write_kind("folder", tmp_path, {"train": images(["10", "9", "9", "1"])})
    folder = ImageFolder(root / "train")
    for source in (open_source(root / "train"), open_source(folder)):
        assert source.classes == folder.classes == ["1", "10", "9"]
        assert source.labels().tolist() == folder.targets


def test_torchvision_names__are_kept_in_order():
    data = CIFAR10.__new__(CIFAR10)
    data.data = np.zeros((3, 4, 4, 3), np.uint8)
    data.classes = ["plane", "car"]
    for data.targets in ([1, 0, 1], ["car", "plane", "car"]):
        source = open_source(data)
        assert (source.classes, source.labels().tolist()) == (["plane", "car"], [1, 0, 1])


def test_join__lists_four_unknown_classes_and_counts_the_rest():
    for test, train, words in (
        ("abcde", "a", r"images: b, c, d, e\. The .* have a\."),
        ("abcdef", "a", r"images: b, c, d, e and 1 more\. The .* have a\."),
        ("e", "abcd", r"images: e\. The .* have a, b, c, d\."),
    ):
        with pytest.raises(ValueError, match=words):
            join_classes(list(train), name_classes(test), "DIR/val")


def test_names__count_reasons_for_unlabeled_images(caplog):
    name_classes(["a", None, None, "", "nan", "-1", -1], missing=MISSING_VALUES)
    assert "6 of 7 images are unlabeled: no label (2), -1 (2), empty (1), nan (1)" in caplog.text


def hugging_face(**columns):
    import datasets

    image, label = datasets.Image(), datasets.ClassLabel(names=["x", "y"])
    kinds = {
        name: label if isinstance(values[0], int) else image for name, values in columns.items()
    }
    return datasets.Dataset.from_dict(columns, datasets.Features(kinds))


def test_hugging_face_columns__are_found_by_name(tmp_path, caplog):
    data = hugging_face(
        mask=[gray(1), gray(2)], domain=[0, 0], photo=[gray(3), gray(4)], label=[1, 0]
    )
    data.save_to_disk(tmp_path / "saved")
    for source in (open_source(data), open_source(tmp_path / "saved")):
        assert source[0][0].unique().tolist() == [3]
        assert source.labels().tolist() == [1, 0]
    assert "images from the column 'photo'" in caplog.text
    assert "labels from the column 'label'" in caplog.text


def test_unknown_columns__are_refused_unless_chosen():
    data = hugging_face(left=[gray(1)] * 2, right=[gray(2)] * 2, shape=[0, 1], color=[1, 0])
    with pytest.raises(
        ValueError,
        match=r"left, right, shape, color has a known name, such as image.* `image_column`",
    ):
        open_source(data)
    source = open_source(data, columns=Columns("right"))
    with pytest.raises(NoLabels, match=r"shape, color has .* such as label.* `label_column`"):
        source.labels()
    chosen = ImageDataset(
        data, ImageViews(image_size=8), image_column="right", label_column="color"
    ).source
    assert chosen[0][0].unique().tolist() == [2]
    assert chosen.labels().tolist() == [1, 0]
    with pytest.raises(ValueError, match="`label_column` = size is not a column of labels"):
        open_source(data, columns=Columns("right", "size")).labels()


def test_columns__may_hold_encoded_images(tmp_path):
    import datasets

    file = io.BytesIO()
    gray(7).save(file, "PNG")
    content = file.getvalue()
    for image in ({"bytes": content}, content):
        data = {"image": [image] * 2, "mask": [b"no image"] * 2, "name": ["a.png", "b.png"]}
        datasets.Dataset.from_dict(data).to_parquet(tmp_path / "a.parquet")
        assert open_source(tmp_path / "a.parquet")[1][0].unique().tolist() == [7]
    assert open_source(tmp_path / "a.parquet", columns=Columns("image"))[0][1]
    # Text cells are never opened as paths: the file would decide what is read.
    for column in ("name", "photo"):
        with pytest.raises(ValueError, match=f"`image_column` = {column} is not a column"):
            open_source(tmp_path / "a.parquet", columns=Columns(column))
    data = {"image": ["a.png", "b.png"], "label": [["u"], ["u", "v"]], "id": [1, 2]}
    texts = datasets.Dataset.from_dict(data)
    with pytest.raises(
        ValueError, match=r"None of the columns label, id has a known name, such as image"
    ):
        open_source(texts)
    tags = in_memory(images("ab")).add_column("tags", [["u"], ["u", "v"]])
    with pytest.raises(ValueError, match=r"image has the label \['u'\], .* one class per image"):
        open_source(tags, columns=Columns(label="tags")).labels()


def test_in_memory_columns__are_found_by_name():
    items = [{"mask": gray(1), "photo": gray(2)}] * 2
    assert open_source(items)[0][0].unique().tolist() == [2]
    one_hot = np.eye(2)[0]  # a vector is no image
    assert open_source([(one_hot, gray(2))] * 2)[0][0].unique().tolist() == [2]
    with pytest.raises(ValueError, match="columns a, b has a known name, such as image"):
        open_source([{"a": gray(1), "b": gray(2)}] * 2)[0]
    pairs = [(gray(1), gray(2))] * 2
    with pytest.raises(ValueError, match="columns 0, 1 has a known name, such as image"):
        open_source(pairs)[0]
    assert open_source(pairs, columns=Columns(1))[0][0].unique().tolist() == [2]
