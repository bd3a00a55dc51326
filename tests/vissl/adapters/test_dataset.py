"""What the data set of a run refuses: paths, and classes that do not fit."""

import pytest
from PIL import Image
from vissl import data as host_data

from pirl_plugin.system.failures import Refused
from pirl_plugin.vissl.adapters.dataset import PIRLDataset
from tests.helpers.configs import compose

QUICK = "config=pretrain/pirl/quick_jigsaw"


def open_data(split, *overrides):
    sources = (host_data.DATASET_SOURCE_MAP, host_data.DATA_SOURCES_WITH_SUBSET_SUPPORT)
    return PIRLDataset(compose(*overrides), split, *sources)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ("[]", r"config.DATA.TRAIN.DATA_PATHS = \[\]: expected a path, .* set .*PATHS=\[DIR\]"),
        ("[a,b]", r"DATA_PATHS = \['a', 'b'\]: expected one path and one source"),
        ("[/nowhere]", "config.DATA.TRAIN.DATA_PATHS: /nowhere: expected a folder"),
        ("[labels.pkl]", "names labels.pkl: expected no pickle"),
    ],
)
def test_paths__that_are_mistakes_are_named(paths, message):
    with pytest.raises((Refused, FileNotFoundError), match=message):
        open_data("TRAIN", QUICK, f"config.DATA.TRAIN.DATA_PATHS={paths}")


def test_classes__that_do_not_fit_are_refused(image_folder, tmp_path):
    train = f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]"
    linear = ["config=benchmark/pirl/quick_linear", train]
    (tmp_path / "val" / "ants").mkdir(parents=True)
    (tmp_path / "val" / "wasps").mkdir()
    for number in range(2):
        Image.new("RGB", (8, 8)).save(tmp_path / "val" / "wasps" / f"{number}.png")
    with pytest.raises(ValueError, match=r"found wasps beside ants, bees"):
        open_data("TEST", *linear, f"config.DATA.TEST.DATA_PATHS=[{tmp_path / 'val'}]")
    linear.append(f"config.DATA.TEST.DATA_PATHS=[{image_folder / 'val'}]")
    open_data("TRAIN", *linear, "config.MODEL.HEAD.NUM_CLASSES=2")
    with pytest.raises(ValueError, match="NUM_CLASSES = 1: expected at least 2"):
        open_data("TRAIN", *linear, "config.MODEL.HEAD.NUM_CLASSES=1")
