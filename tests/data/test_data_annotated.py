"""VOC07 and iNaturalist-2018 from what they unpack to."""

import json

import pytest

from pirl_plugin.data.annotated import read_inaturalist18, read_voc07
from pirl_plugin.data.source import PIRLDiskDataset


@pytest.fixture
def voc(tmp_path):
    lists = tmp_path / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (lists / "cat_trainval.txt").write_text("000002 -1\n000001  1\n")
    (lists / "bird_trainval.txt").write_text("000001  0\n000002  1\n")
    (lists / "trainval.txt").write_text("000001\n000002\n")
    (lists / "cat_test.txt").write_text("000003  1\n")
    (lists / "bird_test.txt").write_text("000003 -1\n")
    return tmp_path


def test_voc07__labels_are_in_the_order_of_the_classes(voc):
    paths, labels = read_voc07(str(voc), "TRAIN")
    assert paths == ["JPEGImages/000001.jpg", "JPEGImages/000002.jpg"]
    # bird: difficult in 1, present in 2; cat: present in 1, absent from 2
    assert labels.tolist() == [[-1, 1], [1, 0]]
    assert read_voc07(str(voc), "TEST")[1].tolist() == [[0, 1]]


def test_voc07__is_a_data_source(voc):
    config = {"DATA": {"TRAIN": {}}}
    source = PIRLDiskDataset(config, "pirl_disk_voc07", str(voc), "TRAIN")
    assert source.get_image_paths()[1] == str(voc / "JPEGImages" / "000002.jpg")
    assert len(source) == len(source.get_labels()) == 2


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("dog_trainval.txt", "000001 2\n", "holds '000001 2'; expected an image and 1, -1 or 0"),
        ("dog_trainval.txt", "000009 1\n", "list different images"),
    ],
)
def test_voc07__refuses(file, content, message, voc):
    (voc / "ImageSets" / "Main" / file).write_text(content)
    with pytest.raises(ValueError, match=message):
        read_voc07(str(voc), "TRAIN")


def test_voc07__names_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no ImageSets/Main/<class>_test\.txt"):
        read_voc07(str(tmp_path), "TEST")


def test_inaturalist18__labels_are_the_annotations(tmp_path):
    images = [{"id": 5, "file_name": "train_val2018/A/11/x.jpg"}, {"id": 3, "file_name": "y.jpg"}]
    annotations = [{"image_id": 3, "category_id": 7}, {"image_id": 5, "category_id": 11}]
    content = {"images": images, "annotations": annotations}
    (tmp_path / "val2018.json").write_text(json.dumps(content))
    paths, labels = read_inaturalist18(str(tmp_path), "TEST")
    assert paths == ["train_val2018/A/11/x.jpg", "y.jpg"]
    assert labels.tolist() == [11, 7]
    with pytest.raises(FileNotFoundError, match=r"has no train2018\.json"):
        read_inaturalist18(str(tmp_path), "TRAIN")


@pytest.mark.parametrize("content", ["no json", "[]", '{"images": [{"id": 1}], "annotations": []}'])
def test_inaturalist18__refuses(content, tmp_path):
    (tmp_path / "train2018.json").write_text(content)
    with pytest.raises(ValueError, match=r"train2018\.json cannot be read .*'images' and 'annota"):
        read_inaturalist18(str(tmp_path), "TRAIN")


@pytest.mark.parametrize(
    ("kind", "missing", "wanted"),
    [
        ("pirl_disk_voc07", "ImageSets/Main/<class>_trainval.txt", "VOC2007, the folder that"),
        ("pirl_disk_inaturalist18", "train2018.json", "the folder that holds train2018.json"),
    ],
)
def test_annotated__says_what_is_missing_and_what_to_set(kind, missing, wanted, tmp_path):
    mend = f": point config.DATA.TRAIN.DATA_PATHS=[DIR] at {wanted}"
    for path, found in ((tmp_path, f"has no {missing}"), (tmp_path / "x", "is not a folder that")):
        with pytest.raises(FileNotFoundError) as caught:
            PIRLDiskDataset({"DATA": {"TRAIN": {}}}, kind, str(path), "TRAIN")
        assert str(caught.value).startswith(f"{path} {found}")
        assert mend in str(caught.value)


def test_inaturalist18__of_one_image_is_told_of_its_own_files(tmp_path):
    write_annotations(tmp_path / "train2018.json", [7])
    with pytest.raises(ValueError, match=r"2 are needed: point .* that holds train2018\.json"):
        PIRLDiskDataset({"DATA": {"TRAIN": {}}}, "pirl_disk_inaturalist18", tmp_path, "TRAIN")


def write_annotations(file, labels):
    images = [{"id": n, "file_name": f"{n}.jpg"} for n in range(len(labels))]
    annotations = [{"image_id": n, "category_id": label} for n, label in enumerate(labels)]
    file.write_text(json.dumps({"images": images, "annotations": annotations}))
