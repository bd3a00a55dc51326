"""The images of evaluations: the splits of every kind of source, and their classes."""

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.evaluation.labelled_images import open_labelled, open_splits
from tests.helpers.host_tools import write_classes


def test_open_labelled__finds_the_usual_names_of_splits(tmp_path):
    write_classes(tmp_path, {"Train": 4, "validation": 4}, separable=True)
    images = open_labelled(tmp_path)
    assert images.test.path.endswith("validation")
    assert images.classes == ["class0", "class1"]


@pytest.mark.parametrize(
    ("train", "val", "largest"),
    [
        ((-1, 0, 3, 3), (0, 0, 3, 3), 3),  # -1: no class
        ((1, 1, 3, 3), (1, 1, 1, 1), 3),  # no test image of a class
        ((1, 1, 3, 3), (0, 1, 3, 3), None),
    ],
)
def test_open_labelled__of_lists_with_numbers(train, val, largest, tmp_path):
    data = write_classes(tmp_path / "data", {"train": 4, "val": 4}, separable=True)
    for split, labels in (("train", train), ("val", val)):
        files = sorted((data / split).rglob("*.png"))
        lines = [f"{file},{label}" for file, label in zip(files, labels, strict=True)]
        (tmp_path / f"{split}.csv").write_text("\n".join(lines))
    if largest is None:
        with pytest.raises(ValueError, match=r"the same classes .* found 2 and 3; look at 0"):
            open_labelled(tmp_path)
    else:  # a classifier has an output for each number
        assert open_labelled(tmp_path).classes == [str(number) for number in range(largest + 1)]


def test_open_labelled__of_lists_without_labels_compares_the_names_of_folders(tmp_path):
    data = write_classes(tmp_path / "data", {"train": 6, "val": 6}, separable=True, classes=3)
    for path in (data / "val" / "class1").iterdir():
        path.unlink()
    (data / "val" / "class1").rmdir()
    for split in ("train", "val"):
        files = sorted(map(str, (data / split).rglob("*.png")))
        (tmp_path / f"{split}.txt").write_text("\n".join(files))
    with pytest.raises(ValueError, match=r"found 3 and 2; look at class1"):
        open_labelled(tmp_path)


def test_open_labelled__of_a_hugging_face_data_set_with_two_splits(tmp_path):
    import datasets

    pixels = np.zeros((8, 8, 3), np.uint8)

    def split(labels):
        columns = {"image": [Image.fromarray(pixels + label) for label in labels], "label": labels}
        features = datasets.Features(
            image=datasets.Image(), label=datasets.ClassLabel(names=["cat", "dog"])
        )
        return datasets.Dataset.from_dict(columns, features=features)

    parts = {"train": split([0, 1, 1]), "test": split([1, 0])}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    for name, part in parts.items():
        (tmp_path / "hub" / "data").mkdir(parents=True, exist_ok=True)
        part.to_parquet(tmp_path / "hub" / "data" / f"{name}-00000-of-00001.parquet")
    for folder in (tmp_path / "saved", tmp_path / "hub" / "data"):
        images = open_labelled(folder)
        assert (images.train.labels().tolist(), images.test.labels().tolist()) == (
            [0, 1, 1],
            [1, 0],
        )
        assert images.classes == ["cat", "dog"]
        assert torch.equal(images.test[1][0], torch.zeros(3, 8, 8, dtype=torch.uint8))


def test_open_splits__of_images_without_splits_is_one_source(tmp_path):
    data = write_classes(tmp_path, {"train": 4}, separable=True)
    assert list(open_splits(data / "train")) == [""]
    with pytest.raises(FileNotFoundError, match=r"--data = .*: expected train/CLASS"):
        open_labelled(data / "train")
