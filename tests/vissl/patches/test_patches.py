"""Each patch: needed and applied, not needed and left alone."""

import contextlib
import os
import pickle
import resource
import subprocess
import sys
import types
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pirl_plugin.vissl.patches import evaluation_patches, patches
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


def test_pkg_resources__is_lent_and_taken_back(monkeypatch):
    monkeypatch.delitem(sys.modules, "pkg_resources", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", _without("pkg_resources"))
    patches.provide_pkg_resources(None)
    stand_in = sys.modules["pkg_resources"]
    assert stand_in.resource_filename("configs", "config/x.json").endswith("configs/config/x.json")
    assert torch.__version__.startswith(stand_in.get_distribution("torch").version)
    with pytest.raises(ModuleNotFoundError, match="no package 'nowhere' to look for 'x' in"):
        stand_in.resource_filename("nowhere", "x")
    patches.withdraw_pkg_resources(None)
    assert "pkg_resources" not in sys.modules


def test_pkg_resources__finds_the_hosts_configs_beside_a_module_of_that_name(tmp_path):
    (tmp_path / "configs.py").write_text("")
    code = "import vissl.data, configs; print(configs.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "configs.py")


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


def _broadcast(rank, world_size):
    from classy_vision.generic.distributed_util import broadcast_object

    sent = {"weights": torch.arange(1000), "step": 7} if rank == 0 else None
    return broadcast_object(sent)


def test_broadcast_object__hands_the_same_object_to_every_process():
    for received in run_in_processes(_broadcast, 2):
        assert torch.equal(received["weights"], torch.arange(1000))
        assert received["step"] == 7


class Planted:
    """Pickled, it runs a function when it is loaded."""

    def __reduce__(self):
        return os.putenv, ("PIRL_PLANTED", "1")


def _broadcast_planted(rank, world_size):
    from classy_vision.generic.distributed_util import broadcast_object

    if rank == 0:
        broadcast_object({"weights": Planted()})
        return "sent"
    try:
        broadcast_object(None)
    except pickle.UnpicklingError as error:
        return str(error)


def test_broadcast_object__runs_no_code():
    assert "Weights only load failed" in run_in_processes(_broadcast_planted, 2)[1]


def _broadcast_large(rank, world_size):
    from classy_vision.generic.distributed_util import broadcast_object

    size = 400_000_000
    sent = {str(i): torch.ones(size // 40) for i in range(10)} if rank == 0 else None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    received = broadcast_object(sent)
    assert all(bool((value == 1).all()) for value in received.values())
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) / size


def test_broadcast_object__holds_the_checkpoint_once():
    sender, receiver = run_in_processes(_broadcast_large, 2)
    assert sender < 0.3  # beside the checkpoint itself
    assert receiver < 1.3


def test_broadcast_object__of_one_process_is_immediate():
    from classy_vision.generic.distributed_util import broadcast_object

    class Checkpoint:
        def __reduce__(self):
            raise AssertionError("saved, to be sent to nobody: 3 s for 48 MB")

    checkpoint = Checkpoint()
    assert broadcast_object(checkpoint) is checkpoint


def test_broadcast_object__of_a_sound_host_is_left_alone():
    def broadcast_object(obj, src=0, use_disk=True):
        return obj

    module = SimpleNamespace(broadcast_object=broadcast_object)
    patches.broadcast_without_copies(module)
    assert module.broadcast_object is broadcast_object


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
    evaluation_patches.extract_features_on_cpu(module)
    trainer = Trainer()
    trainer.task = SimpleNamespace(
        device=torch.device("cpu"), prepare_extraction=lambda pin_memory: None
    )
    trainer.extract("out")
    assert seen["device"] == "cpu"
    assert torch.equal(seen["tensor"], torch.ones(2))
    assert torch.Tensor.cuda is cuda
    assert trainer.task.device.type == "cpu"


def test_svm__without_a_result_is_a_failure_even_for_those_who_catch_exceptions(tmp_path):
    from vissl.utils.io import load_file

    np.save(tmp_path / "test_ap.npy", np.array([[0.5]]))
    assert load_file(str(tmp_path / "test_ap.npy")) == 0.5
    message = r"no average precision in .*test_ap.npy: training the SVM failed"
    with pytest.raises(SystemExit, match=message), contextlib.suppress(Exception):
        load_file(str(tmp_path / "res5" / "test_ap.npy"))  # the host's tool suppresses exceptions


def test_low_shot__samples_k_positives_from_a_list_of_k(tmp_path):
    from extra_scripts.create_low_shot_samples import generate_low_shot_samples

    targets = np.zeros((40, 2), dtype=np.int32)
    targets[:20, 0] = targets[20:, 1] = 1
    generate_low_shot_samples("voc", targets, [1, 3], [1], str(tmp_path), "res5")
    for k in (1, 3):
        sample = np.load(tmp_path / f"res5_sample1_k{k}.npy")
        assert ((sample == 1).sum(axis=0) == k).all()
        assert ((sample == 0).sum(axis=0) == k).all()  # (classes − 1) · k


def test_low_shot__of_a_sound_host_is_left_alone():
    def generate_low_shot_samples(dataset_name, targets, k_values):
        return k_values

    module = SimpleNamespace(generate_low_shot_samples=generate_low_shot_samples)
    evaluation_patches.low_shot_samples_from_a_list(module)
    assert module.generate_low_shot_samples is generate_low_shot_samples


def test_low_shot__means_of_one_number_are_numbers(monkeypatch):
    from vissl.utils.svm_utils import svm_low_shot_trainer

    cell = np.zeros((1, 1))
    cell[0][0] = svm_low_shot_trainer.np.mean(np.array([[1.0], [2.0]]), axis=0)
    assert cell[0][0] == 1.5
    both = svm_low_shot_trainer.np.mean(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    assert both.tolist() == [2.0, 3.0]
    assert np.mean(np.ones((2, 1)), axis=0).shape == (1,)  # numpy itself is as it was


def test_svm__trained_again_takes_nothing_of_an_earlier_run(tmp_path):
    names = ["test_ap.npy", "crossval_ap.npy", "chosen_cost.npy", "AP_cls0_cost1.0.npy"]
    names += ["cls0_cost1.0.pickle"]

    class SVMTrainer:
        output_dir = str(tmp_path)

        def train(self, features, targets):
            self.found = sorted(p.name for p in tmp_path.iterdir())

    module = SimpleNamespace(SVMTrainer=SVMTrainer)
    evaluation_patches.svm_starts_again(module)
    for name in [*names, "features.npy"]:
        (tmp_path / name).touch()
    trainer = module.SVMTrainer()
    for again, expected in ((False, sorted([*names, "features.npy"])), (True, ["features.npy"])):
        trainer.config = {"force_retrain": again}
        trainer.train(None, None)
        assert trainer.found == expected
