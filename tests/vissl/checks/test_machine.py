"""The checks of this machine before a launch."""

import pytest

from pirl_plugin.vissl.checks.machine import (
    check_draw_memory,
    check_folder,
    check_machine,
    check_slurm,
)
from tests.helpers.configs import compose


def config(*overrides):
    return compose("config=pretrain/pirl/quick_jigsaw", *overrides)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["config.MACHINE.DEVICE=gpu"],
            r"PER_NODE = 1 .* found 0 here; give .*machines=cpu",
        ),
        (["config.DISTRIBUTED.NUM_NODES=8"], r"of 8 nodes; .*RUN_ID=HOST:PORT .*USE_SLURM=true"),
    ],
)
def test_check_machine__refuses_in_one_sentence(overrides, message, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(SystemExit, match=message) as stopped:
        check_machine(config(*overrides))
    assert len(str(stopped.value).splitlines()) == 1


def test_check_machine__accepts_nodes_that_know_each_other():
    check_machine(config("config.DISTRIBUTED.NUM_NODES=8", "config.DISTRIBUTED.RUN_ID=a:29500"))


@pytest.mark.parametrize("gpus", [0, 1, 4])
def test_check_machine__says_what_works_here(gpus, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    works = {0: "machines=cpu", 1: "machines=1gpu", 4: "NUM_PROC_PER_NODE=4"}[gpus]
    asked = "config=pretrain/pirl/jigsaw_8node", "+config/pirl/machines=1node_8gpu"
    with pytest.raises(
        SystemExit, match=rf"found {gpus} here; (?:add|give) \+config/pirl.*{works}"
    ) as said:
        check_machine(compose(*asked))
    assert "1gpu" not in str(said.value) or gpus == 1  # never what has just failed


def test_check_machine__refuses_nccl_on_a_cpu():
    with pytest.raises(SystemExit, match=r"BACKEND = 'nccl' .* expected gloo"):
        check_machine(config("config.DISTRIBUTED.BACKEND=nccl"))


def test_check_machine__refuses_the_hosts_mixed_precision_on_a_cpu():
    """The first rank failed by it, and the dry run had checked everything."""
    with pytest.raises(SystemExit, match=r"USE_AMP = true .* expected false.*autocast=bfloat16 in"):
        check_machine(config("config.MODEL.AMP_PARAMS.USE_AMP=true"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "PARTITION=''",
            "PARTITION = '': expected the name of a partition; set it to one that",
        ),
        ("TIME_HOURS=abc", "TIME_HOURS = 'abc': expected a number above 0; set it to one, such as"),
        ("MEM_GB=0", "MEM_GB = 0: expected a number above 0"),
    ],
)
def test_check_slurm__refuses_in_one_sentence(override, message):
    """They were assertions and type errors of the host's."""
    job = ["config.SLURM.USE_SLURM=true", "config.SLURM.PARTITION=any"]
    check_slurm(config(*job))
    check_slurm(config(f"config.SLURM.{override}"))
    with pytest.raises(SystemExit, match=f"config.SLURM.{message}"):
        check_slurm(config(*job, f"config.SLURM.{override}"))


def test_check_slurm__says_where_there_is_none(monkeypatch, tmp_path, capsys):
    """submitit runs the job in the background, without a word."""
    monkeypatch.setenv("PATH", str(tmp_path))
    job = config("config.SLURM.USE_SLURM=true", "config.SLURM.PARTITION=any")
    check_slurm(job)
    assert "srun is not on the PATH: submitit runs the job on" in capsys.readouterr().err
    (tmp_path / "srun").touch(0o755)
    check_slurm(job)
    assert capsys.readouterr().err == ""


def test_check_folder__refuses_what_cannot_be_written_to(tmp_path):
    check_folder(config(f"config.CHECKPOINT.DIR={tmp_path / 'a' / 'b'}"))
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match=r"DIR = .*file/run': .* is a file; set"):
        check_folder(config(f"config.CHECKPOINT.DIR={tmp_path / 'file' / 'run'}"))
    with pytest.raises(SystemExit, match=r"DIR = '~/run': .* nothing expands ~ here; write \$HOME"):
        check_folder(config("config.CHECKPOINT.DIR='~/run'"))
    (tmp_path / "link").symlink_to("scratch")
    with pytest.raises(SystemExit, match=r"/link' is a link to 'scratch', which is not there; set"):
        check_folder(config(f"config.CHECKPOINT.DIR={tmp_path / 'link' / 'run'}"))


def test_check_negatives__refuses_a_draw_larger_than_memory(monkeypatch):
    monkeypatch.setattr("pirl_plugin.vissl.checks.machine.memory_of_device", lambda config: 2**30)
    check_draw_memory(config("config.LOSS.pirl_loss.num_negatives=2000000"))  # 32 × 8 bytes each
    many = ["config.LOSS.pirl_loss.num_negatives=4000000"]
    with pytest.raises(SystemExit, match="num_negatives = 4000000: expected fewer"):
        check_draw_memory(config(*many))
    check_draw_memory(config(*many, "config.LOSS.pirl_loss.negatives=per_batch"))
