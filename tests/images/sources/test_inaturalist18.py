"""iNaturalist-2018 from what it unpacks to."""

import json

import pytest

from pirl_plugin.images.sources.inaturalist18 import INaturalist18Source


def test_inaturalist18__labels_are_the_annotations(tmp_path):
    images = [{"id": 5, "file_name": "train_val2018/A/11/x.jpg"}, {"id": 3, "file_name": "y.jpg"}]
    annotations = [{"image_id": 3, "category_id": 7}, {"image_id": 5, "category_id": 11}]
    content = {"images": images, "annotations": annotations}
    (tmp_path / "val2018.json").write_text(json.dumps(content))
    source = INaturalist18Source(tmp_path, "test")
    assert source.paths() == [str(tmp_path / "train_val2018/A/11/x.jpg"), str(tmp_path / "y.jpg")]
    assert source.labels().tolist() == [11, 7]
    with pytest.raises(FileNotFoundError, match=r"has no train2018\.json"):
        INaturalist18Source(tmp_path)


@pytest.mark.parametrize("content", ["no json", "[]", '{"images": [{"id": 1}], "annotations": []}'])
def test_inaturalist18__refuses(content, tmp_path):
    (tmp_path / "train2018.json").write_text(content)
    with pytest.raises(ValueError, match=r"train2018\.json cannot be read .*'images' and 'annota"):
        INaturalist18Source(tmp_path)


def test_inaturalist18__of_one_image_says_which_files_are_expected(tmp_path):
    content = {
        "images": [{"id": 0, "file_name": "0.jpg"}],
        "annotations": [{"image_id": 0, "category_id": 7}],
    }
    (tmp_path / "train2018.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"2 are needed: expected .* that holds train2018\.json"):
        INaturalist18Source(tmp_path)
