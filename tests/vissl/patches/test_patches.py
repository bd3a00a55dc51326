"""Each patch: needed and applied, not needed and left alone."""

import contextlib
import os
import pickle
import sys
import types
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from classy_vision.dataset import dataloader_async_gpu_wrapper
from torch.utils.data import DataLoader

from pirl_plugin.vissl.patches import patches, svm
from tests.helpers.processes import run_in_processes


def test_kinetics400__is_an_alias_where_torchvision_dropped_it(monkeypatch):
    from torchvision.datasets import kinetics

    monkeypatch.delattr(kinetics, "Kinetics400", raising=False)
    patches.alias_kinetics400(None)
    assert kinetics.Kinetics400 is kinetics.Kinetics
    theirs = type("Kinetics400", (), {})
    monkeypatch.setattr(kinetics, "Kinetics400", theirs)
    patches.alias_kinetics400(None)
    assert kinetics.Kinetics400 is theirs


def test_pkg_resources__is_there_while_the_host_imports_it(monkeypatch):
    import vissl

    monkeypatch.delitem(sys.modules, "pkg_resources", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", _without("pkg_resources"))
    patches.provide_pkg_resources(None)
    stand_in = sys.modules["pkg_resources"]
    catalog = Path(stand_in.resource_filename("configs", "config/dataset_catalog.json"))
    # beside the host, whatever else is named configs
    assert catalog.parents[2] == Path(vissl.__file__).parents[1]
    assert torch.__version__.startswith(stand_in.get_distribution("torch").version)
    patches.withdraw_pkg_resources(None)
    assert "pkg_resources" not in sys.modules


def test_pkg_resources__of_an_older_setuptools_stays(monkeypatch):
    theirs = types.ModuleType("pkg_resources")
    monkeypatch.setitem(sys.modules, "pkg_resources", theirs)
    patches.provide_pkg_resources(None)
    patches.withdraw_pkg_resources(None)
    assert sys.modules["pkg_resources"] is theirs


def _without(name):
    import importlib.util

    find = importlib.util.find_spec
    return lambda asked, *rest: None if asked == name else find(asked, *rest)


class Planted:
    """Pickled, it runs a function when it is loaded."""

    def __reduce__(self):
        return os.putenv, ("PIRL_PLANTED", "1")


def _broadcast(rank, world_size):
    """What a process receives, and what it says of a file that runs code."""
    from classy_vision.generic.distributed_util import broadcast_object

    received = broadcast_object({"weights": torch.arange(1000), "step": 7} if rank == 0 else None)
    try:
        broadcast_object({"weights": Planted()} if rank == 0 else None)
    except pickle.UnpicklingError as error:
        return received, str(error)
    return received, ""


def test_broadcast_object__is_the_same_everywhere_and_runs_no_code():
    (first, _), (second, refused) = run_in_processes(_broadcast, 2)
    for received in (first, second):
        assert torch.equal(received["weights"], torch.arange(1000))
        assert received["step"] == 7
    assert "Weights only load failed" in refused


def test_broadcast_object__of_one_process_is_immediate():
    from classy_vision.generic.distributed_util import broadcast_object

    class Checkpoint:
        def __reduce__(self):
            raise AssertionError("saved, to be sent to nobody: 3 s for 48 MB")

    checkpoint = Checkpoint()
    assert broadcast_object(checkpoint) is checkpoint


def test_data_paths__need_no_catalog():
    from vissl.config import AttrDict
    from vissl.data.dataset_catalog import get_data_files

    config = {"DATA_SOURCES": ["disk_folder"], "DATASET_NAMES": ["unheard_of"], "LABEL_PATHS": []}
    config = AttrDict({"TRAIN": {**config, "DATA_PATHS": ["here"], "COPY_TO_LOCAL_DISK": False}})
    assert get_data_files("TRAIN", config) == [["here"], []]
    assert config.TRAIN.LABEL_PATHS == []
    config.TRAIN.DATA_PATHS = []
    with pytest.raises(KeyError, match="unheard_of"):
        get_data_files("TRAIN", config)


def test_labels__of_our_sources_are_asked_for():
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
    assert dataset.label_sources == ["pirl_disk_folder"]
    dataset.label_sources = ["nobody_knows"]
    with pytest.raises(ValueError, match="unknown label source: nobody_knows"):
        GenericSSLDataset.load_labels(dataset)


def test_average_precision__is_a_number_and_right():
    from vissl.utils.svm_utils.evaluate import get_precision_recall

    # Ranked by score: hit, miss, hit, miss. Precision at the hits: 1, 2/3 → AP = (1 + 2/3) / 2
    targets, scores = np.array([1, -1, 1, -1]), np.array([0.9, 0.8, 0.7, 0.1])
    *_, average = get_precision_recall(targets, scores)
    assert isinstance(average, float)
    assert average == pytest.approx(5 / 6)


def test_extraction__runs_on_a_cpu_and_leaves_nothing_behind():
    cuda = torch.Tensor.cuda
    seen = {}

    class Trainer:
        def extract(self, output_folder):
            assert self.task.device.type == "cuda", "Set MACHINE.DEVICE = gpu"
            self.task.prepare_extraction(pin_memory=False)
            seen["device"] = self.task.device.type
            seen["tensor"] = torch.ones(2).cuda(non_blocking=True)

    module = SimpleNamespace(SelfSupervisionTrainer=Trainer)
    svm.extract_features_on_cpu(module)
    trainer = Trainer()
    trainer.task = SimpleNamespace(
        device=torch.device("cpu"), prepare_extraction=lambda pin_memory: None
    )
    trainer.extract("out")
    assert seen["device"] == "cpu"
    assert torch.equal(seen["tensor"], torch.ones(2))
    assert torch.Tensor.cuda is cuda
    assert trainer.task.device.type == "cpu"


def test_low_shot__samples_k_positives_from_a_list_of_k(tmp_path):
    from extra_scripts.create_low_shot_samples import generate_low_shot_samples

    targets = np.zeros((40, 2), dtype=np.int32)
    targets[:20, 0] = targets[20:, 1] = 1
    generate_low_shot_samples("voc", targets, [1, 3], [1], str(tmp_path), "res5")
    for k in (1, 3):
        sample = np.load(tmp_path / f"res5_sample1_k{k}.npy")
        assert ((sample == 1).sum(axis=0) == k).all()
        assert ((sample == 0).sum(axis=0) == k).all()  # (classes − 1) · k
    with pytest.raises(SystemExit, match=r"k_values = \[96\]: expected each class to have k"):
        generate_low_shot_samples("voc", targets, [96], [1], str(tmp_path), "res5")


def test_low_shot__means_of_one_number_are_numbers():
    from vissl.utils.svm_utils import svm_low_shot_trainer

    cell = np.zeros((1, 1))
    cell[0][0] = svm_low_shot_trainer.np.mean(np.array([[1.0], [2.0]]), axis=0)
    assert cell[0][0] == 1.5
    both = svm_low_shot_trainer.np.mean(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    assert both.tolist() == [2.0, 3.0]
    assert np.mean(np.ones((2, 1)), axis=0).shape == (1,)  # numpy itself is as it was


def test_svm__trained_again_takes_nothing_of_an_earlier_run(tmp_path):
    from vissl.config import AttrDict

    costs = ["AP_cls0_cost1.0.npy", "chosen_cost.npy", "cls0_cost1.0.pickle", "crossval_ap.npy"]
    kept = ["rank0_chunk0_test_heads_features.npy"]
    config = {"CHECKPOINT": {"DIR": str(tmp_path)}, "EXTRACT_FEATURES": {"OUTPUT_DIR": ""}}
    config |= {"DISTRIBUTED": {"NUM_NODES": 1}, "TEST_ONLY": False, "TEST_MODEL": False}
    (tmp_path / "res5").mkdir()
    for again, expected in ((False, [*costs, *kept]), (True, kept)):
        for name in [*costs, "test_ap.npy"]:
            (tmp_path / "res5" / name).touch()
        for name in [*kept, "rank0_chunk0_train_heads_features.npy"]:
            (tmp_path / name).touch()
        svm.remove_old_results(AttrDict({**config, "SVM": {"force_retrain": again}}))
        assert sorted(file.name for file in tmp_path.rglob("*.*")) == sorted(expected)


class Stream:
    """Of a GPU: its commands, in order."""

    def __init__(self, name, said):
        self.name, self.said = name, said

    def wait_stream(self, other):
        self.said.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def said(monkeypatch):
    """A GPU as far as the host's loader sees one."""
    said = []
    main = Stream("main", said)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: Stream("copies", said))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: main)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(
        dataloader_async_gpu_wrapper,
        "recursive_copy_to_gpu",
        lambda batch, non_blocking: said.append(f"copy {batch}") or batch,
    )
    return said


def test_copies__wait_for_the_step_that_reads_what_they_overwrite(said):
    wrapper = dataloader_async_gpu_wrapper.DataloaderAsyncGPUWrapper
    for batch in wrapper(DataLoader(["a", "b", "c"], batch_size=None)):
        said.append(f"step {batch}")
    assert said[:10] == [
        "copies waits for main",
        "copy a",
        "main waits for copies",
        "copies waits for main",
        "copy b",
        "step a",
        "main waits for copies",
        "copies waits for main",  # and so for the step that reads a
        "copy c",
        "step b",
    ]
