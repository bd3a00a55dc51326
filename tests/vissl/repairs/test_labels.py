"""Paths and labels for data outside any catalog."""

from types import SimpleNamespace

import pytest


def test_data_paths__need_no_catalog():
    from vissl.config import AttrDict
    from vissl.data.dataset_catalog import get_data_files

    config = {"DATA_SOURCES": ["disk_folder"], "DATASET_NAMES": ["unheard_of"], "LABEL_PATHS": []}
    config = AttrDict({"TRAIN": {**config, "DATA_PATHS": ["here"], "COPY_TO_LOCAL_DISK": False}})
    assert get_data_files("TRAIN", config) == [["here"], []]
    config.TRAIN.update(DATA_PATHS=[], LABEL_PATHS=[])
    with pytest.raises(KeyError, match="unheard_of"):
        get_data_files("TRAIN", config)


def test_labels__are_requested_from_our_sources():
    from vissl.data.ssl_dataset import GenericSSLDataset

    dataset = SimpleNamespace(
        cfg={},
        label_paths=[],
        label_sources=["pirl_disk_folder"],
        data_sources=["pirl_disk_folder"],
        data_paths=["here"],
        label_objs=[],
        labels_init=False,
        data_objs=[SimpleNamespace(get_labels=lambda: [2, 0, 1])],
    )
    GenericSSLDataset.load_labels(dataset)
    assert dataset.label_objs[0].tolist() == [2, 0, 1]
    dataset.label_sources = ["nobody_knows"]
    with pytest.raises(ValueError, match="unknown label source: nobody_knows"):
        GenericSSLDataset.load_labels(dataset)
