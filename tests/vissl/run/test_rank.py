"""What ranks take from torchrun, and report: ranks that differ, and how several ended."""

import json
import signal
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf
from vissl.config import AttrDict

from pirl_plugin.system import ranks as distributed
from pirl_plugin.system.failures import Refused, record
from pirl_plugin.vissl.resume.record import Record
from pirl_plugin.vissl.run.launch import _Ranks
from pirl_plugin.vissl.run.rank import (
    _compare_ranks,
    follow_torchrun,
    torchrun_local_rank,
)
from pirl_plugin.vissl.sections import RECORD

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "LOCAL_RANK": "1",
    "GROUP_RANK": "2",
    "GROUP_WORLD_SIZE": "3",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "first",
    "MASTER_PORT": "29500",
}


def config_of(backend="gloo"):
    return AttrDict(
        {
            "CHECKPOINT": {"DIR": "out"},
            "SEED_VALUE": 0,
            "DATA": {"TRAIN": {"BATCHSIZE_PER_REPLICA": 32}},
            "HOOKS": {"PIRL_RUN": {"timeout_minutes": 7}},
            "DISTRIBUTED": {"BACKEND": backend, "NUM_NODES": 1, "NUM_PROC_PER_NODE": 2},
        }
    )


def with_record(config):
    config[RECORD] = Record(json.dumps(config), weights={})
    return config


@pytest.mark.parametrize(
    ("key", "value", "checkpoint", "message"),
    [
        ("SEED_VALUE", 1, "model_phase0.torch", r"rank 1: SEED_VALUE = 1 \(on rank 0 0\)\. "),
        ("DATA.TRAIN.BATCHSIZE_PER_REPLICA", 16, "model_phase0.torch", "rank 1: global batch = 32"),
        ("SEED_VALUE", 0, None, "not the same folder .* model_phase0.torch, and rank 1 from none"),
        ("CHECKPOINT.DIR", "other", "model_phase0.torch", None),  # a mount may differ
    ],
)
def test_ranks__that_differ_are_refused(key, value, checkpoint, message, monkeypatch):
    other = section = config_of()
    *sections, name = key.split(".")
    for each in sections:
        section = section[each]
    section[name] = value
    records = []

    def gather(record):
        records.append(record)
        return records

    monkeypatch.setattr(distributed, "gather_objects", gather)
    _compare_ranks(with_record(config_of()), "a/model_phase0.torch")
    if message is None:
        _compare_ranks(with_record(other), checkpoint)
        return
    with pytest.raises(Refused, match=message):
        _compare_ranks(with_record(other), checkpoint and f"b/{checkpoint}")


def test_launcher__shows_the_cause_of_this_attempt(tmp_path):
    record("pirl_plugin: of an earlier attempt", "", tmp_path)
    ranks = _Ranks(config_of(), tmp_path, node_id=0)
    error = SimpleNamespace(exit_code=1, error_index=1)
    with pytest.raises(SystemExit, match="rank 1 ended with exit status 1"):
        ranks._end(error)
    record("rank 0: another rank ended", "Traceback …", tmp_path)
    record("pirl_plugin: rank 1: the cause", "Traceback …", tmp_path)
    with pytest.raises(SystemExit, match=r"rank 1: the cause \(traceback in .*failure.txt\)"):
        ranks._end(error)
    assert "earlier attempt" in (tmp_path / "failure.txt").read_text()


def test_launcher__shows_only_the_sentence_of_a_refusal(tmp_path):
    ranks = _Ranks(config_of(), tmp_path, node_id=0)
    record("pirl_plugin: config.DATA: expected images", "", tmp_path)
    with pytest.raises(SystemExit) as ended:
        ranks._end(SimpleNamespace(exit_code=1, error_index=1))
    assert ended.value.code == "pirl_plugin: config.DATA: expected images"


@pytest.mark.parametrize(
    ("backend", "name", "message"),
    [
        ("nccl", "SIGABRT", "rank 1 was ended by NCCL: another rank .* for 7 minutes"),
        ("gloo", "SIGABRT", "rank 1 was ended by SIGABRT"),
        ("gloo", "SIGKILL", "rank 1 was ended by SIGKILL, which the system sends if memory"),
    ],
)
def test_launcher__explains_signals(backend, name, message, tmp_path):
    code = -signal.Signals[name]
    error = SimpleNamespace(exit_code=code, signal_name=name, error_index=1)
    ranks = _Ranks(config_of(backend=backend), tmp_path, node_id=0)
    record("rank 0: another rank ended", "", tmp_path)
    with pytest.raises(SystemExit, match=message):
        ranks._end(error)


def test_follow__takes_nodes_and_address(monkeypatch):
    section = {"NUM_NODES": 8, "NUM_PROC_PER_NODE": 5, "INIT_METHOD": "env", "RUN_ID": "auto"}
    composed = OmegaConf.create({"node_id": 0, "config": {"DISTRIBUTED": section}})
    follow_torchrun(composed)
    assert composed.config.DISTRIBUTED == section  # LOCAL_RANK alone is not torchrun's
    assert torchrun_local_rank() is None
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    follow_torchrun(composed)
    assert torchrun_local_rank() == 1
    assert composed.node_id == 2
    assert composed.config.DISTRIBUTED == {
        "NUM_NODES": 3,
        "NUM_PROC_PER_NODE": 4,
        "INIT_METHOD": "tcp",
        "RUN_ID": "first:29500",
    }


@pytest.mark.parametrize(
    "variable",
    ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
)
def test_follow__refuses_processes_that_would_train_alone(variable, monkeypatch):
    composed = OmegaConf.create({"node_id": 0, "config": {"DISTRIBUTED": {"NUM_NODES": 1}}})
    monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("SLURM_PROCID", "0")
    follow_torchrun(composed)
    monkeypatch.setenv(variable, "2")
    with pytest.raises(Refused, match=f"{variable} = 2: .* torchrun"):
        follow_torchrun(composed)
    if variable == "SLURM_NTASKS":  # a batch script is one process
        with monkeypatch.context() as batch:
            batch.setenv("ENVIRONMENT", "BATCH")
            follow_torchrun(composed)
    composed.config.DISTRIBUTED.NUM_NODES = 2  # one process on each node
    follow_torchrun(composed)
