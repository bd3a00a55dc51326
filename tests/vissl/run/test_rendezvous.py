"""What a process takes from torchrun, and that it takes nothing without torchrun."""

import pytest
from omegaconf import OmegaConf

from pirl_plugin.system.failures import Refused
from pirl_plugin.vissl.run import rendezvous

VARIABLES = {
    "TORCHELASTIC_RUN_ID": "none",
    "LOCAL_RANK": "1",
    "GROUP_RANK": "2",
    "GROUP_WORLD_SIZE": "3",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "first",
    "MASTER_PORT": "29500",
}


def test_follow__takes_nodes_and_address(monkeypatch):
    section = {"NUM_NODES": 8, "NUM_PROC_PER_NODE": 5, "INIT_METHOD": "env", "RUN_ID": "auto"}
    composed = OmegaConf.create({"node_id": 0, "config": {"DISTRIBUTED": section}})
    rendezvous.follow_torchrun(composed)
    assert composed.config.DISTRIBUTED == section  # LOCAL_RANK alone is not torchrun's
    assert rendezvous.local_rank() is None
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    rendezvous.follow_torchrun(composed)
    assert rendezvous.local_rank() == 1
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
    rendezvous.follow_torchrun(composed)
    monkeypatch.setenv(variable, "2")
    with pytest.raises(Refused, match=f"{variable} = 2: .* torchrun"):
        rendezvous.follow_torchrun(composed)
    if variable == "SLURM_NTASKS":  # a batch script is one process
        with monkeypatch.context() as batch:
            batch.setenv("ENVIRONMENT", "BATCH")
            rendezvous.follow_torchrun(composed)
    composed.config.DISTRIBUTED.NUM_NODES = 2  # one process on each node
    rendezvous.follow_torchrun(composed)
