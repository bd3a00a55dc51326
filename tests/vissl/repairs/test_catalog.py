"""``PIRL_DATASETS=DIR`` locates all data sets."""

import shutil

import numpy as np
import pytest
from vissl.data import dataset_catalog
from vissl.data.dataset_catalog import VisslDatasetCatalog
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin.vissl.repairs.environment import LAYOUT, register_our_datasets


@pytest.fixture
def catalog(monkeypatch):
    """Register the data sets for ``PIRL_DATASETS=root``, and empty the catalog afterwards."""

    def register(root):
        monkeypatch.setenv("PIRL_DATASETS", str(root))
        register_our_datasets(dataset_catalog)

    VisslDatasetCatalog.clear()
    yield register
    VisslDatasetCatalog.clear()


def config(*overrides):
    overrides = ["config=pretrain/pirl/npid_8node", *overrides]
    return convert_to_attrdict(compose_hydra_configuration(overrides), dump_config=False)[1]


def test_catalog__is_empty_without_variable(monkeypatch):
    monkeypatch.delenv("PIRL_DATASETS", raising=False)
    VisslDatasetCatalog.clear()
    register_our_datasets(dataset_catalog)
    assert VisslDatasetCatalog.list() == []


def test_catalog__finds_imagenet_from_one_path(catalog, image_folder, tmp_path):
    shutil.copytree(image_folder, tmp_path / "imagenet1k")
    catalog(tmp_path)
    assert set(VisslDatasetCatalog.list()) == set(LAYOUT)
    chosen = config("+config/pirl/datasets=imagenet1k")
    paths, labels = dataset_catalog.get_data_files("TRAIN", chosen.DATA)
    assert (paths, labels) == ([str(tmp_path / "imagenet1k" / "train")], [])


def test_catalog__finds_yfcc_list(catalog, image_folder, tmp_path):
    (tmp_path / "yfcc1m").mkdir()
    names = [str(path) for path in (image_folder / "train").rglob("*.jpg")]
    np.save(tmp_path / "yfcc1m" / "train.npy", np.array(names))
    catalog(tmp_path)
    chosen = config("+config/pirl/datasets=yfcc1m")
    (found,), _ = dataset_catalog.get_data_files("TRAIN", chosen.DATA)
    assert found == str(tmp_path / "yfcc1m" / "train.npy")


def test_catalog__keeps_user_entries_and_fills_placeholders(catalog, tmp_path):
    own = {"train": ["/own/train", ""], "val": ["/own/val", ""]}
    VisslDatasetCatalog.register_data("imagenet1k_folder", own)
    blank = {"train": ["<img_path>", "<lbl_path>"], "val": ["<img_path>", "<lbl_path>"]}
    VisslDatasetCatalog.register_data("places205_folder", blank)
    catalog(tmp_path)
    assert VisslDatasetCatalog.get("imagenet1k_folder") == own
    found = VisslDatasetCatalog.get("places205_folder")["val"][0]
    assert found == str(tmp_path / "places205" / "val")
