"""A file that runs code when it is unpickled is run nowhere that the product reads files."""

import os
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from vissl.data.ssl_dataset import GenericSSLDataset

from pirl_plugin.checkpoints.read import read_checkpoint
from pirl_plugin.images.sources import open_source
from pirl_plugin.vissl.checks import sources_of
from tests.helpers.configs import compose


class Planted:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def labels(path):
    dataset = SimpleNamespace(
        cfg={"LOSS": {"name": "pirl_loss"}},
        label_sources=["disk_filelist"], label_paths=[str(path)], data_sources=["disk_filelist"],
        _convert_to_numeric_ids=lambda classes: classes, label_objs=[], labels_init=False,
        load_single_label_file=lambda file: np.load(file, allow_pickle=True),
    )  # fmt: skip
    GenericSSLDataset.load_labels(dataset)


def named(path):
    from vissl.utils.io import load_file

    config = compose("config=benchmark/pirl/quick_linear")
    config.DATA.TRAIN.DATA_SOURCES = ["disk_filelist"]
    config.DATA.TRAIN.DATA_PATHS = [str(path)]
    sources_of(config, "TRAIN")
    load_file(str(path))


def array(planted, path):
    np.save(path, np.array([planted, planted], dtype=object), allow_pickle=True)


def pickled(planted, path):
    path.write_bytes(pickle.dumps(planted))


def saved(planted, path):
    torch.save({"classy_state_dict": planted}, path)


@pytest.mark.parametrize(
    ("name", "write", "read"),
    [
        ("labels.npy", array, labels),
        ("labels.npy", pickled, labels),
        ("images.npy", array, named),
        ("images.pkl", pickled, named),
        ("images.npy", array, lambda path: open_source(path, "pirl_disk_filelist").paths()),
        ("images.npy", pickled, lambda path: open_source(path, "pirl_disk_filelist").paths()),
        ("model.torch", saved, read_checkpoint),
        ("model.torch", pickled, read_checkpoint),
    ],
)
def test_planted_file__is_refused_and_not_run(name, write, read, tmp_path):
    write(Planted(tmp_path / "ran"), tmp_path / name)
    with pytest.raises(
        Exception, match=r"(?i)pickle|Python objects|unsafe|safe loading|no array of strings"
    ):
        read(tmp_path / name)
    assert not (tmp_path / "ran").exists()


def test_labels__that_are_plain_arrays_are_read(tmp_path):
    np.save(tmp_path / "labels.npy", np.array([0, 1, 1]))
    labels(tmp_path / "labels.npy")
