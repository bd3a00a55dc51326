"""The setting of a comparison: which images are the same."""

import json
import os
import shutil

from pirl_plugin.experiments.claims.comparison import new_setting
from pirl_plugin.experiments.data import find_data

NAMES = {"name": "", "digest": "", "train_bytes": 0}


def test_setting__counts_the_bytes_of_the_training_images(image_folder):
    files = [file for file in (image_folder / "train").rglob("*") if file.is_file()]
    data = new_setting("quick", find_data(image_folder), 4, 1, 1)["data"]
    assert data["train_bytes"] == sum(file.stat().st_size for file in files) > 0


def test_setting__tells_images_apart_by_their_names(image_folder, make_image, tmp_path):
    first = new_setting("quick", find_data(image_folder), 4, 1, 1)
    assert (first["data"]["train_images"], first["data"]["val_images"]) == (20, 8)
    assert first["data"]["classes"] == 2
    for split in ("train", "val"):
        for name in ("ants", "bees"):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(10 if split == "train" else 4):
                make_image(tmp_path / split / name / f"{i + 1}.jpg", seed=i)
    second = new_setting("quick", find_data(tmp_path), 4, 1, 1)
    assert {**first["data"], **NAMES} == {**second["data"], **NAMES}
    assert first["data"]["digest"] != second["data"]["digest"]
    assert str(tmp_path) not in json.dumps(second)


def test_setting__takes_names_that_are_no_text(image_folder, tmp_path):
    shutil.copytree(image_folder, tmp_path / "data")
    image = next((tmp_path / "data" / "train").rglob("*.jpg"))
    image.rename(image.with_name(os.fsdecode(b"caf\xe9.jpg")))
    assert new_setting("quick", find_data(tmp_path / "data"), 4, 1, 1)["data"]["train_images"] == 20
