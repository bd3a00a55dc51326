"""Data sets of the ``datasets`` package: splits, damaged files, and rows that name other files."""

import json
import re

import datasets
import pytest
from PIL import Image
from torch.utils.data import ConcatDataset, Subset

from pirl_plugin.images.hugging_face import open_data_files
from pirl_plugin.images.labeled import open_labeled
from pirl_plugin.images.opening import open_source
from pirl_plugin.images.reading import Reading
from tests.helpers.kinds import gray, in_memory, path_of, write_kind


def test_hugging_face__explains_what_to_pass_for_several_splits(tmp_path):
    rows = [("a", gray(1)), ("b", gray(2))]
    write_kind("parquet", tmp_path / "hub", {"train": rows, "test": rows})

    splits = {split: in_memory(rows) for split in ("train", "test")}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"saved has no state\.json\. Pass .*/saved/train, or"):
        open_source(tmp_path / "saved")
    assert open_labeled(tmp_path / "saved").classes == ["a", "b"]
    with pytest.raises(ValueError, match=r"contains no images, only \.parquet \(2\)"):
        open_source(tmp_path / "hub" / "data")
    assert len(open_source(tmp_path / "hub" / "data" / "*.parquet")) == 4
    with pytest.raises(FileNotFoundError, match=r"no-\*\.parquet: no such file"):
        open_source(tmp_path / "no-*.parquet")


def test_hugging_face__masks_missing_images_in_memory():

    features = datasets.Features({"photo": datasets.Image(), "label": datasets.Value("int64")})
    image = Image.new("RGB", (9, 9))
    columns = {"photo": [image, None, image], "label": [4, 5, 6]}
    data = datasets.Dataset.from_dict(columns, features=features)
    source = open_source(data)
    assert [source[row][1] for row in range(3)] == [True, False, True]
    assert (source.classes, source.labels().tolist()) == (["4", "5", "6"], [0, 1, 2])
    with pytest.raises(ValueError, match="expected a map-style data set"):
        open_source(data.to_iterable_dataset())
    with pytest.raises(ValueError, match=r"expected a map-style data set.* got a DatasetDict"):
        open_source(datasets.DatasetDict({"train": data}))


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
@pytest.mark.parametrize("content", ["empty", "cut", "text"])
def test_hugging_face__names_damaged_file(kind, content, tmp_path):
    root = write_kind(kind, tmp_path, {"train": [("a", gray(1)), ("b", gray(2))]})
    (file,) = root.glob("*/*.parquet" if kind == "parquet" else "*/*.arrow")
    whole = file.read_bytes()
    file.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "text": b"x" * 99}[content])
    with pytest.raises(ValueError, match=rf"{re.escape(str(file))} cannot be read"):
        open_source(path_of(kind, root, "train"))


def test_hugging_face__refuses_incomplete_data_sets(tmp_path):
    in_memory([("a", gray(1)), ("b", gray(2))]).save_to_disk(tmp_path, num_shards=2)
    assert len(open_source(tmp_path)) == 2
    for number in (1, 0):
        (tmp_path / f"data-0000{number}-of-00002.arrow").unlink()
        with pytest.raises(ValueError, match=rf"has {number} files data-.* in a new folder"):
            open_source(tmp_path)


@pytest.mark.parametrize("name", ["$HOME", "${A}.parquet", "a::b", "zip::http:"])
def test_parquet__refuses_names_that_datasets_expands(name, tmp_path):
    with pytest.raises(ValueError, match="rename the file or folder"):
        open_data_files([str(tmp_path / name / "a.parquet")])


def test_hugging_face__fetches_no_row_from_a_server(monkeypatch):

    image = [{"bytes": None, "path": "http://localhost:9/x.png"}] * 2
    features = datasets.Features(image=datasets.Image())
    data = datasets.Dataset.from_dict({"image": image}, features)
    monkeypatch.setattr("socket.socket.connect", None)  # any request would raise another error
    for held in (
        data, data.with_format("torch"), data.with_format("numpy"), Subset(data, [1, 0]),
        ConcatDataset([data, Subset(data.with_format("torch"), [0])]),
    ):  # fmt: skip
        source = open_source(held)
        read = [source.load(row, 8, Reading())[1] for row in range(len(held))]
        assert read == [False] * len(held)
    with pytest.raises(ValueError, match="has its own transform"):
        open_source(data.with_transform(lambda rows: rows))


def test_hugging_face__reads_no_file_outside_its_folder(tmp_path):
    root = write_kind("arrow", tmp_path / "in", {"train": [("a", gray(1)), ("b", gray(2))]})
    state = root / "train" / "state.json"
    content = json.loads(state.read_text())
    content["_data_files"] = [{"filename": "../../planted/data.arrow"}]
    state.write_text(json.dumps(content))
    assert open_source(root / "train").classes == ["a", "b"]
