"""Images replaced under the same name are detected in every format."""

import json
import os
import shutil

import pytest
import torch
from PIL import Image

from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.cli import run
from pirl_plugin.images import prepare
from pirl_plugin.images.columns import Columns
from pirl_plugin.images.opening import open_source
from pirl_plugin.models.resnet import ResNetTrunk
from tests.helpers.host_tools import write_classes
from tests.helpers.images import save_gray
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


@pytest.fixture
def measure(tmp_path):
    """Return a function that runs knn with a feature file and returns the results."""
    torch.manual_seed(0)
    save_trunk(ResNetTrunk(10, 0.25), tmp_path / "trunk.torch")
    write_classes(tmp_path / "data", {"train": 12, "val": 6}, separable=True)

    def knn(*options, data="data"):
        words = ["--checkpoint", str(tmp_path / "trunk.torch"), "--data", str(tmp_path / data)]
        words += ["--features", str(tmp_path / "f.npz"), "--out", str(tmp_path / "out")]
        run(["knn", *words, "--size", "32", "-k", "3", "--no-untrained", *options])
        return json.loads((tmp_path / "out" / "results.json").read_text())

    return knn


def test_features__are_reused_for_moved_but_not_replaced_images(measure, tmp_path):
    assert measure()["knn_top1"] == 100
    written = (tmp_path / "f.npz").stat().st_mtime_ns
    (tmp_path / "data").rename(tmp_path / "moved")
    assert measure(data="moved")["knn_top1"] == 100
    val = tmp_path / "moved" / "val"
    one = val / "class0" / "0.png"
    other = val / "class1" / "1.png"
    other.rename(val / "other.png")
    one.rename(other)
    (val / "other.png").rename(one)
    with pytest.raises(
        ValueError, match=r"f\.npz was computed for a different version of the imag"
    ):
        measure(data="moved")
    assert (tmp_path / "f.npz").stat().st_mtime_ns == written


@pytest.fixture
def copied(tmp_path):
    """Return a function that prepares ``in`` and maps names to gray levels in the copy."""
    words = [str(tmp_path / "in"), str(tmp_path / "out"), "--workers", "0"]
    for number in range(6):
        save_gray(tmp_path / "in" / "cat" / f"{number}.png", 40 * number)

    def copy():
        assert prepare.main(words) == 0
        source = open_source(tmp_path / "out")
        levels = {source.name_of(row): int(source[row][0][0, 0, 0]) for row in range(len(source))}
        return {name.rpartition("/")[2].split(".")[0]: level for name, level in levels.items()}

    return copy


def test_prepare__updates_changed_and_deletes_removed_images(copied, tmp_path, capsys):
    levels = {str(number): 40 * number for number in range(6)}
    assert copied() == levels
    capsys.readouterr()
    assert copied() == levels
    assert "0 images copied, 6 already there" in capsys.readouterr().out
    cat = tmp_path / "in" / "cat"
    os.utime(cat / "3.png", ns=(0, (cat / "2.png").stat().st_mtime_ns))
    save_gray(cat / "2.png", 7)
    (cat / "4.png").unlink()
    (cat / "5.png").unlink()
    save_gray(cat / "00.png", 9)
    expected = {"00": 9, **{name: levels[name] for name in ("0", "1", "3")}}
    assert copied() == {**expected, "2": 7}
    (cat / "0.png").unlink()
    save_gray(cat / "2.png", 8, size=(600, 500))
    del expected["0"]
    assert copied() == {**expected, "2": 8}
    copy = tmp_path / "out" / "cat" / "2.png"  # the copy keeps the name, so image lists still apply
    assert Image.open(copy).format == "JPEG"


def test_prepare__deletes_copy_of_broken_image(copied, tmp_path):
    copied()
    (tmp_path / "in" / "cat" / "2.png").write_bytes(b"no image")
    assert "2" not in copied()


def test_prepare__keeps_copies_of_unreachable_images(tmp_path, monkeypatch):
    for number in range(3):
        save_gray(tmp_path / "in" / f"{number}.png", number)
    words = [str(tmp_path / "in"), str(tmp_path / "out"), "--workers", "0"]
    prepare.main(words)

    def fail(path):
        raise OSError(f"{path}: the mount is gone")

    monkeypatch.setattr(prepare, "read_file", fail)
    monkeypatch.setattr(prepare, "content_stamp", lambda path: "missing")
    assert prepare.main(words) == 1
    assert len(list((tmp_path / "out").glob("*.png"))) == 3


def test_prepare__deletes_nothing_without_record(tmp_path):
    save_gray(tmp_path / "in" / "1.png")
    save_gray(tmp_path / "out" / "mine.png")
    with pytest.raises(ValueError, match=r"did not write\. Choose a new or empty"):
        prepare.main([str(tmp_path / "in"), str(tmp_path / "out"), "--workers", "0"])
    assert (tmp_path / "out" / "mine.png").is_file()


def test_prepare__deletes_no_file_outside_the_copy(tmp_path):
    save_gray(tmp_path / "in" / "1.png")
    save_gray(tmp_path / "mine.png")
    words = [str(tmp_path / "in"), str(tmp_path / "out"), "--workers", "0"]
    prepare.main(words)
    with (tmp_path / "out" / ".prepared.jsonl").open("a") as record:
        record.write('["../mine.png", "1 1"]\n')
    with pytest.raises(ValueError, match=r"names \.\./mine\.png, outside its own folder"):
        prepare.main(words)
    assert (tmp_path / "mine.png").is_file()
