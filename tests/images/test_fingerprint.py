"""Images replaced under the same name are detected in every format."""

import shutil

import pytest

from pirl_plugin.images.columns import Columns
from pirl_plugin.images.opening import open_source
from tests.helpers.kinds import KINDS, gray, open_kind, write_kind


def digests(kind, root):
    data = open_kind(kind, root, "train", "test")
    return [data.train.fingerprint(), data.test.fingerprint()]


@pytest.mark.parametrize("kind", KINDS)
def test_digests__change_with_images_but_not_with_location(kind, tmp_path):
    rows = [("a", gray(1)), ("b", gray(2)), ("a", gray(3))]
    root = write_kind(kind, tmp_path / "one", {"train": rows, "test": rows[:2]})
    before = digests(kind, root)
    shutil.move(root, tmp_path / "two")
    assert digests(kind, tmp_path / "two") == before
    shutil.rmtree(tmp_path / "two")
    rows[1] = ("b", gray(9))
    write_kind(kind, root, {"train": rows, "test": rows[:1]})
    after = digests(kind, root)
    assert after[0][0] == before[0][0]  # the same names
    assert after[0][1] != before[0][1]  # with different content
    assert after[1][0] != before[1][0]  # one image less


def test_digests__depend_on_image_column(tmp_path):
    import datasets

    features = datasets.Features(before=datasets.Image(), after=datasets.Image())
    columns = {"before": [gray(1), gray(2)], "after": [gray(3), gray(4)]}
    data = datasets.Dataset.from_dict(columns, features)
    data.to_parquet(tmp_path / "train.parquet")
    names = []
    for column in columns:
        source = open_source(tmp_path / "train.parquet", columns=Columns(column))
        names.append(source.fingerprint()[0])
    assert names[0] != names[1]
