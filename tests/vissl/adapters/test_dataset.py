"""What a run's data set refuses, and how it identifies images and classes."""

import pytest
from PIL import Image

from pirl_plugin.system.failures import Refused
from pirl_plugin.vissl.adapters.dataset import open_datasets
from tests.helpers.configs import compose
from tests.helpers.images import save_gray

QUICK = "config=pretrain/pirl/quick_jigsaw"


def open_data(split, *overrides):
    return open_datasets(compose(*overrides), [split])[split.lower()]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ("[]", r"config.DATA.TRAIN.DATA_PATHS is empty, .* Set .*PATHS=\[DIR\]"),
        ("[a,b]", r"DATA_PATHS = \['a', 'b'\]: expected one path with one source"),
        ("[/nowhere]", "/nowhere"),
    ],
)
def test_mistaken_paths__are_named(paths, message):
    with pytest.raises((Refused, FileNotFoundError), match=message):
        open_data("TRAIN", QUICK, f"config.DATA.TRAIN.DATA_PATHS={paths}")


def test_mismatched_classes__are_refused(image_folder, tmp_path):
    train = f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]"
    linear = ["config=benchmark/pirl/quick_linear", train]
    (tmp_path / "val" / "ants").mkdir(parents=True)
    (tmp_path / "val" / "wasps").mkdir()
    for number in range(2):
        Image.new("RGB", (8, 8)).save(tmp_path / "val" / "wasps" / f"{number}.png")
    with pytest.raises(ValueError, match=r"images: wasps\. The training images have ants, bees"):
        open_data("TEST", *linear, f"config.DATA.TEST.DATA_PATHS=[{tmp_path / 'val'}]")
    linear.append(f"config.DATA.TEST.DATA_PATHS=[{image_folder / 'val'}]")
    open_data("TRAIN", *linear, "config.MODEL.HEAD.NUM_CLASSES=2")
    with pytest.raises(ValueError, match="NUM_CLASSES = 1: expected at least 2, the number"):
        open_data("TRAIN", *linear, "config.MODEL.HEAD.NUM_CLASSES=1")


@pytest.mark.parametrize("list_name", ["", "list.csv"])
def test_identity__depends_on_paths_and_classes_but_not_folder(list_name, tmp_path):
    folder = tmp_path / "a"
    for number in range(4):
        save_gray(folder / "cat" / f"{number}.png")
        save_gray(folder / "dog" / f"{number}.png")

    def write_list(rows):
        lines = [f"{animal}/{number}.png,{label}" for animal, number, label in rows]
        (folder / "list.csv").write_text("\n".join(["path,label", *lines]))

    def identity():
        name = "filelist" if list_name else "folder"
        split = "config.DATA.TRAIN"
        return open_data(
            "TRAIN",
            "config=benchmark/pirl/quick_linear",
            f"{split}.DATA_PATHS=[{folder / list_name}]",
            f"{split}.DATA_SOURCES=[pirl_disk_{name}]",
            f"{split}.LABEL_SOURCES=[pirl_disk_{name}]",
        ).identity()

    rows = [(animal, number, animal) for animal in ("cat", "dog") for number in range(4)]
    write_list(rows)
    before = identity()
    assert before["count"] == 8
    folder = folder.rename(tmp_path / "b")
    assert identity() == before
    if list_name:
        write_list([*rows[:7], ("dog", 3, "cat")])
        corrected = identity()
        assert corrected["paths"] == before["paths"]
        assert corrected["classes"] != before["classes"]
        save_gray(folder / "dog" / "9.png")
        write_list([("dog", 9, "cat"), *rows[1:]])
    else:
        (folder / "dog" / "3.png").rename(folder / "dog" / "4.png")
    replaced = identity()
    assert replaced["paths"] != before["paths"]
    assert replaced["classes"] == before["classes"]


def test_other_sources__are_refused():
    """VISSL's own would read label files with pickle."""
    paths = [f"config.DATA.{split}.DATA_PATHS=[nowhere]" for split in ("TRAIN", "TEST")]
    for key in ("DATA_SOURCES", "LABEL_SOURCES"):
        words = ["config=benchmark/pirl/quick_linear", f"config.DATA.TRAIN.{key}=[disk_filelist]"]
        with pytest.raises(Refused, match=rf"DATA\.TRAIN\.{key} = .*disk_filelist.*: expected"):
            open_data("TRAIN", *words, *paths)
