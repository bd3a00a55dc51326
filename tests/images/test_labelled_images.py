"""The images of evaluations: the splits of every kind of source, and their classes."""

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.images.opening import open_labelled, open_splits
from tests.helpers.host_tools import write_classes


def test_open_labelled__finds_the_usual_names_of_splits(tmp_path):
    write_classes(tmp_path, {"Train": 4, "validation": 4}, separable=True)
    images = open_labelled(tmp_path)
    assert images.test.path.endswith("validation")
    assert images.classes == ["class0", "class1"]


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
    for folder in (tmp_path / "saved", tmp_path / "hub" / "data", tmp_path / "hub"):
        images = open_labelled(folder)
        assert images.train_labels.tolist() == [0, 1, 1]
        assert images.test_labels.tolist() == [1, 0]
        assert images.classes == ["cat", "dog"]
        assert torch.equal(images.test[1][0], torch.zeros(3, 8, 8, dtype=torch.uint8))


def test_open_splits__of_images_without_splits_is_one_source(tmp_path):
    data = write_classes(tmp_path, {"train": 4}, separable=True)
    assert list(open_splits(data / "train")) == [""]
    with pytest.raises(FileNotFoundError, match=r"--data = .*: expected train/CLASS"):
        open_labelled(data / "train")
