"""Paths for data outside any catalog."""

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
