"""A source of one's own, by the steps that CONTRIBUTING gives, under VISSL and without."""

import csv

import numpy as np
import pytest
from PIL import Image

from pirl_plugin.images import names
from pirl_plugin.images.image_dataset import ImageDataset
from pirl_plugin.images.sources.base import ImageSource
from pirl_plugin.images.sources.registry import open_source, source_at
from pirl_plugin.views.image import ImageViews
from pirl_plugin.vissl.adapters.source import PIRLDiskDataset


class CSVSource(ImageSource):
    """The images of a CSV file: ``path,label`` a line, for one split or the other."""

    wanted = "a CSV file of path,label"

    def __init__(self, path, split="train", grey_size=224):
        with open(path, newline="") as file:
            rows = [row for row in csv.reader(file) if (row[2] == "t") == (split == "train")]
        labels = np.array([int(row[1]) for row in rows])
        root = str(path.parent)
        super().__init__(path, [row[0] for row in rows], root, labels, grey_size)


@pytest.fixture
def table(folder, monkeypatch):
    monkeypatch.setitem(names.SOURCES, "pirl_disk_csv", f"{__name__}:CSVSource")
    (folder / "t.csv").write_text("b/1.jpg,7,t\na/x.webp,5,t\nb/2.PNG,7,v\nnone.jpg,0,v\n")
    return folder / "t.csv"


def test_registry__a_fifth_source_is_a_class_and_a_line(table):
    source = open_source("pirl_disk_csv", table, split="test", mmap=True)  # mmap is not its own
    assert [is_valid for _, is_valid in source] == [True, False]
    assert source.labels().tolist() == [7, 0]
    assert ImageDataset(source, ImageViews(image_size=16))[0]["images"].shape == (3, 16, 16)


def test_registry__a_fifth_source_runs_under_vissl(table):
    config = {"DATA": {"TRAIN": {"DEFAULT_GRAY_IMG_SIZE": 16}, "TEST": {}}}
    train = PIRLDiskDataset(config, "pirl_disk_csv", table, "TRAIN")
    assert train.get_labels().tolist() == [7, 5]
    assert isinstance(train[0][0], Image.Image)
    assert PIRLDiskDataset(config, "pirl_disk_csv", table, "TEST").get_labels().tolist() == [7, 0]
    table.write_text("b/1.jpg,7,t\n")
    with pytest.raises(ValueError, match=r"expected a CSV file of path,label; set config\.DATA\."):
        PIRLDiskDataset(config, "pirl_disk_csv", table, "TRAIN")


def test_registry__a_path_is_a_list_or_a_folder(folder):
    (folder / "list.txt").write_text("b/1.jpg\nb/2.PNG\n")
    assert len(source_at(folder)) == 6
    assert len(source_at(folder / "list.txt")) == 2
    with pytest.raises(FileNotFoundError, match="is not a folder that exists"):
        source_at(folder / "nowhere")


def test_registry__refuses_an_unknown_name(tmp_path):
    with pytest.raises(
        ValueError, match=r"'disk_folder': expected one of pirl_disk_folder, .*; name"
    ):
        open_source("disk_folder", tmp_path)


def test_registry__has_the_sources_of_the_configs():
    assert list(names.SOURCES)[:4] == [
        "pirl_disk_folder", "pirl_disk_filelist", "pirl_disk_voc07", "pirl_disk_inaturalist18",
    ]  # fmt: skip
