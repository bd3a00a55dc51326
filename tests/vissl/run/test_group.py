"""What ranks read from torchrun, and how they find differences between them."""

import json

import pytest
import torch
from omegaconf import OmegaConf
from vissl.config import AttrDict

from pirl_plugin.system import ranks as distributed
from pirl_plugin.system.failures import Refused
from pirl_plugin.vissl.resume.record import Record
from pirl_plugin.vissl.run.group import (
    compare_ranks,
    follow_torchrun,
    join_group,
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


def config_of():
    return AttrDict(
        {
            "CHECKPOINT": {"DIR": "out"},
            "SEED_VALUE": 0,
            "DATA": {"TRAIN": {"BATCHSIZE_PER_REPLICA": 32}},
            "HOOKS": {"PIRL_RUN": {"timeout_minutes": 7}},
            "DISTRIBUTED": {"NUM_NODES": 1, "NUM_PROC_PER_NODE": 2},
        }
    )


def with_record(config):
    config[RECORD] = Record(json.dumps(config), weights={}, origins={})
    return config


def test_group__without_gpu_names_cpu_setting(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = AttrDict({**config_of(), "MACHINE": {"DEVICE": "gpu"}})
    with pytest.raises(Refused, match=r"finds no GPU\. .* \+config/pirl/machines=cpu_small"):
        join_group(config, 0, 0, "localhost:1", 1)


@pytest.mark.parametrize(
    ("key", "value", "checkpoint", "message"),
    [
        ("SEED_VALUE", 1, "model_phase0.torch", r"rank 1: SEED_VALUE = 1 \(on rank 0 0\)\. "),
        ("DATA.TRAIN.BATCHSIZE_PER_REPLICA", 16, "model_phase0.torch", "rank 1: global batch = 32"),
        ("SEED_VALUE", 0, None, r"rank 1: resumes from = none \(on rank 0 model_phase0.torch\)\. "),
        ("CHECKPOINT.DIR", "other", "model_phase0.torch", None),  # mounts may differ
    ],
)
def test_differing_ranks__are_refused(key, value, checkpoint, message, monkeypatch):
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
    compare_ranks(with_record(config_of()), "a/model_phase0.torch")
    if message is None:
        compare_ranks(with_record(other), checkpoint)
        return
    with pytest.raises(Refused, match=message):
        compare_ranks(with_record(other), checkpoint and f"b/{checkpoint}")


def test_follow__reads_nodes_and_address(monkeypatch):
    section = {"NUM_NODES": 8, "NUM_PROC_PER_NODE": 5, "INIT_METHOD": "env", "RUN_ID": "auto"}
    composed = OmegaConf.create({"node_id": 0, "config": {"DISTRIBUTED": section}})
    follow_torchrun(composed)
    assert composed.config.DISTRIBUTED == section  # LOCAL_RANK alone does not mean torchrun
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


@pytest.mark.parametrize("variable", ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_follow__refuses_other_launchers(variable, monkeypatch):
    """Each process would train alone, on all images."""
    composed = OmegaConf.create({"node_id": 0, "config": {"DISTRIBUTED": {"NUM_NODES": 1}}})
    monkeypatch.setenv(variable, "1")
    follow_torchrun(composed)
    monkeypatch.setenv(variable, "2")
    with pytest.raises(Refused, match=f"^{variable} = 2, but torchrun did not start"):
        follow_torchrun(composed)
    composed.config.DISTRIBUTED.NUM_NODES = 2  # any launcher may start one process on each node
    follow_torchrun(composed)
