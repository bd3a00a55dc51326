"""Training and test images for a command: two paths, one folder with both, or class folders."""

import json

import pytest

from pirl_plugin.cli import run
from pirl_plugin.images.columns import Columns
from pirl_plugin.images.labeled import _labeled, open_labeled, save_split
from pirl_plugin.images.opening import open_source
from tests.helpers.host_tools import write_classes
from tests.helpers.images import save_gray
from tests.helpers.kinds import KINDS, gray, path_of, write_kind


def test_open_labeled__finds_train_and_test_folders(tmp_path):
    write_classes(tmp_path, {"Train": 4, "validation": 4}, separable=True)
    images = open_labeled(tmp_path)
    assert images.test.path.endswith("validation")
    assert images.classes == ["class0", "class1"]
    assert images.held_out_of is None


@pytest.mark.parametrize("train", KINDS)
@pytest.mark.parametrize("val", ["folder", "csv", "parquet"])
def test_train_and_val__may_differ_in_format(train, val, tmp_path):
    rows = [("a", gray(1)), ("b", gray(2))]
    write_kind(train, tmp_path / "one", {"train": rows})
    write_kind(val, tmp_path / "two", {"val": rows[1:]})
    paths = (path_of(train, tmp_path / "one", "train"), path_of(val, tmp_path / "two", "val"))
    images = open_labeled(train=paths[0], val=paths[1])
    assert (images.classes, images.test_labels.tolist()) == (["a", "b"], [1])
    kinds = {"text": "list", "csv": "list", "arrow": "Hugging", "parquet": "Hugging"}
    assert f"training images: 2 in {paths[0]} ({kinds.get(train, train)}" in images.summary()


def test_open_labeled__refuses_images_without_class_folders(tmp_path):
    save_gray(tmp_path / "flat" / "1.png")
    with pytest.raises(ValueError, match=r"flat has no labels\. Make one folder per class"):
        open_labeled(tmp_path / "flat")


@pytest.mark.parametrize("kind", ["csv", "parquet", "folder"])
def test_open_labeled__refuses_regression_targets_but_not_folders(kind, tmp_path):
    write_kind(kind, tmp_path, {"train": [("0.25", gray(1)), ("1.0", gray(2))]})
    path = path_of(kind, tmp_path, "train")
    if kind == "folder":
        assert open_labeled(train=path, val=path).classes == ["0.25", "1.0"]
        return
    with pytest.raises(ValueError, match=r"are numbers, such as 0\.25, as for regression"):
        open_labeled(train=path, val=path)


@pytest.fixture
def photos(tmp_path):
    """Create class folders of 40, 2 and 1 images, with odd names, and one image beside them."""
    for number in range(40):
        save_gray(tmp_path / "photos" / "none" / "in, here" / f"{number}.png", number)
    for number in range(2):
        save_gray(tmp_path / "photos" / "-1" / f"é\n{number}.png", 50 + number)
    save_gray(tmp_path / "photos" / "one" / "1.png", 60)
    save_gray(tmp_path / "photos" / "0.png", 70)
    return tmp_path / "photos"


def contents(images):
    """Map class names to gray levels, for training and test images."""
    sides = []
    for source, labels in ((images.train, images.train_labels), (images.test, images.test_labels)):
        levels = {}
        for row, label in enumerate(labels):
            name = None if label < 0 else images.classes[label]
            levels.setdefault(name, set()).add(int(source[row][0][0, 0, 0]))
        sides.append(levels)
    return sides


def test_list__holds_out_labeled_images_only(photos, tmp_path):
    """The unlabeled rows are those that embed sorts afterward."""
    rows = ["path,label"]
    for number, path in enumerate(sorted((photos / "none" / "in, here").iterdir())):
        rows.append(f'"{path}",{("cat", "dog", "")[number % 3]}')
    (tmp_path / "list.csv").write_text("\n".join(rows))
    images = open_labeled(tmp_path / "list.csv")
    assert images.classes == ["cat", "dog"]
    assert len(images.train) + len(images.test) == 40
    assert (images.train_labels == -1).sum() == 13
    assert set(images.test_labels.tolist()) == {0, 1}


def test_class_folders__hold_out_a_fifth_of_each_class(photos, capsys):
    train, test = contents(open_labeled(photos))
    assert train["none"] | test["none"] == set(range(40))
    assert 4 <= len(test["none"]) <= 12
    assert (len(train["-1"]), len(test["-1"])) == (1, 1)
    assert train["one"] == {60}
    assert train[None] == {70}
    assert set(test) == {"none", "-1"}
    out = capsys.readouterr().out
    assert "of 44 images in" in out
    assert "use folders train and val" in out


def test_class_folders__keep_split_after_adding_or_moving_photos(photos, tmp_path):
    before = contents(open_labeled(photos))[1]["none"]
    for number in range(40, 50):
        save_gray(photos / "none" / "in, here" / f"{number}.png", number)
    moved = photos.rename(tmp_path / "moved")
    assert contents(open_labeled(moved))[1]["none"] & set(range(40)) == before


def test_save_split__writes_lists_and_refuses_to_ignore_new_photos(photos, tmp_path):
    first = open_labeled(photos)
    for _ in range(2):  # a resumed run has the same images
        written = save_split(first, tmp_path)
        assert contents(written) == contents(first)
    assert written.train.path == str(tmp_path / "train.jsonl")
    assert len(open_source(tmp_path / "val.jsonl")) == len(first.test)
    save_gray(photos / "new" / "1.png")
    save_gray(photos / "new" / "2.png")
    with pytest.raises(ValueError, match="photos has changed since "):
        save_split(open_labeled(photos), tmp_path)


@pytest.mark.parametrize("name", ["test", "Val", "unlabeled", "unsorted"])
def test_folder_that_is_no_class__is_refused(tmp_path, name):
    for folder in ("cat", "dog", name):
        for number in range(2):
            save_gray(tmp_path / folder / f"{number}.png", number)
    for paths in ({"data": tmp_path}, {"train": tmp_path, "val": tmp_path}):
        with pytest.raises(ValueError, match=f"has the folder {name} among its class folders"):
            open_labeled(**paths)


def test_flat_test_folder__is_refused(tmp_path):
    save_gray(tmp_path / "train" / "cat" / "1.png")
    save_gray(tmp_path / "train" / "dog" / "1.png")
    save_gray(tmp_path / "test" / "1.png")
    with pytest.raises(ValueError, match=r"test has no labels\. Make one folder per class"):
        open_labeled(tmp_path)


def test_class_without_test_images__is_named(tmp_path, caplog):
    for path in ("train/cat", "train/dog", "train/emu", "val/dog"):
        save_gray(tmp_path / path / "1.png")
    images = open_labeled(tmp_path)
    assert "val has no images of cat, emu." in caplog.text
    assert "3 classes: cat, dog, emu" in images.summary()


@pytest.fixture
def bursts(tmp_path):
    """Create 10 bursts of 4 photos in each of two classes; one burst has photos of both."""
    for number in range(80):
        burst = 0 if number in (0, 40) else number // 4
        save_gray(tmp_path / "bursts" / f"{number // 40}" / f"{burst}_{number}.png", number)
    return tmp_path / "bursts"


BURSTS = Columns(pattern=r".*/(?P<group>\d+)_.*")


def test_groups__are_held_out_together(bursts, tmp_path, capsys):
    images = open_labeled(bursts, columns=BURSTS)
    train, test = set(images.train.group_names), set(images.test.group_names)
    assert not train & test
    assert 3 <= len(test) <= 5
    assert sorted(contents(images)[1]) == ["0", "1"]
    assert f" in {len(test)} of {len(train | test)} groups are held" in capsys.readouterr().out
    written = save_split(images, tmp_path / "out")
    assert contents(written) == contents(images)
    same = written.train.groups()[:, None] == written.train.groups()
    assert (same == (images.train.groups()[:, None] == images.train.groups())).all()


def test_class_in_a_single_group__is_used_for_training(bursts):
    for number in range(4):
        save_gray(bursts / "2" / f"99_{number}.png", 90 + number)
    train, test = contents(open_labeled(bursts, columns=BURSTS))
    assert sorted(train) == ["0", "1", "2"]
    assert sorted(test) == ["0", "1"]
    one_group = Columns(pattern=r"(?P<group>\d+)/.*")
    with pytest.raises(ValueError, match="only one image or group per class"):
        open_labeled(bursts, columns=one_group)


def test_group_column__of_a_folder_is_refused(bursts):
    for paths in ({"data": bursts}, {"train": bursts, "val": bursts}):
        with pytest.raises(ValueError, match="`group_column` = burst: "):
            open_labeled(**paths, columns=Columns(group="burst"))


def test_groups_on_both_sides__are_reported(bursts, caplog):
    open_labeled(train=bursts, val=bursts, columns=BURSTS)
    assert "Training and test images share 20 groups, such as 0, so accuracies" in caplog.text


def test_channels__are_written_to_lists(tmp_path):
    for number in range(8):
        for channel in ("dapi", "actin"):
            save_gray(tmp_path / "w" / f"{number % 2}" / f"{number}_{channel}.png", number)
    pattern = Columns(pattern=r"(?P<label>\d)/(?P<group>\d)_(?P<channel>\w+)\.png")
    images = open_labeled(tmp_path / "w", columns=pattern)
    written = save_split(images, tmp_path / "out")
    assert contents(written) == contents(images)
    assert written.train.channel_names == ("actin", "dapi")
    assert len(written.train.files()) == 2 * len(images.train)
    other = open_source(tmp_path / "w", columns=Columns(pattern=r"(?P<label>\d)/\d_dapi\.png"))
    with pytest.raises(ValueError, match="has the channels actin dapi, but"):
        _labeled(images.train, other)


def test_class_folders__are_split_by_knn(tmp_path, capsys):
    import torch

    from pirl_plugin.checkpoints.write import save_trunk
    from pirl_plugin.models.resnet import WideResNet

    torch.manual_seed(0)
    save_trunk(WideResNet(10, 0.25), tmp_path / "trunk.torch")
    data = write_classes(tmp_path / "data", {"": 24}, separable=True)
    out = tmp_path / "out"
    words = ["knn", "--checkpoint", str(tmp_path / "trunk.torch"), "--out", str(out)]
    run([*words, "--data", str(data), "--size", "32", "-k", "3", "--no-untrained"])
    results = json.loads((out / "results.json").read_text())
    assert results["knn_top1"] == 100
    assert results["train_images"] + results["test_images"] == 24
    lists = [(out / name).read_text().splitlines() for name in ("train.jsonl", "val.jsonl")]
    assert [len(lines) for lines in lists] == [results["train_images"], results["test_images"]]
    assert "are held out for testing" in capsys.readouterr().out
    other = write_classes(tmp_path / "other", {"": 4}, separable=True)
    with pytest.raises(ValueError, match="out belongs to the run with data "):
        run([*words, "--data", str(other)])


def test_metadata__labels_images_in_a_folder(tmp_path):
    """The ImageFolder layout of the ``datasets`` package."""
    for split in ("train", "test"):
        for number in range(2):
            save_gray(tmp_path / split / f"{number}.png", number)
        rows = [{"file_name": f"{number}.png", "label": "ba"[number]} for number in range(2)]
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (tmp_path / split / "metadata.jsonl").write_text(lines)
    data = open_labeled(tmp_path)
    assert (data.classes, data.test_labels.tolist()) == (["a", "b"], [1, 0])
