"""What a run will take, before it is made."""

import logging
import shutil

import pytest
import torch

from pirl_plugin.checkpoints.host_checkpoint import PLUGIN_SECTION
from pirl_plugin.checkpoints.settings import resume_settings
from pirl_plugin.vissl.checks import dry_run as module
from pirl_plugin.vissl.checks import timed_steps
from pirl_plugin.vissl.checks.dry_run import bank_bytes_of, dry_run, forecast
from pirl_plugin.vissl.checks.timed_steps import Measured
from pirl_plugin.vissl.import_hook import finder
from tests.helpers.configs import compose

PAPER = "config=pretrain/pirl/jigsaw_8node"
IMAGENET = 1_281_167
MEASURED = Measured(input_s=0.01, step_s=0.1, memory=2 * 10**9, weights=10**8, momentum=10**8)


def test_bank_bytes_of__are_rows_times_width():
    assert bank_bytes_of(compose(PAPER), IMAGENET) == IMAGENET * (128 * 4 + 1)  # 657 MB
    sharded = compose(PAPER, "+config/pirl/bank=sharded")
    assert bank_bytes_of(sharded, 3200) == 100 * (128 * 2 + 1)  # on each of 32 ranks, in bfloat16
    assert bank_bytes_of(compose("config=benchmark/pirl/linear_imagenet1k"), IMAGENET) == 0


def test_forecast__is_arithmetic_on_what_was_measured():
    config = compose(PAPER)
    lines = forecast(config, IMAGENET, bank_bytes_of(config, IMAGENET), MEASURED, free=10**12)
    text = "\n".join(lines)
    # 800 · ⌈1,281,167 / 1,024⌉ steps of 0.1 s; 32 · 10 ms of input are 4 workers' 80 ms
    assert "1,001,600 steps of 1,024 images" in text
    assert "27 h 49 min in all, 100 ms a step" in text
    assert "4 workers a process keep up, 8 asked for: enough" in text
    # 100 MB of weights, as much of momentum, 657 MB of bank; the two newest and the final one
    assert "857 MB a checkpoint, up to 3 kept: 2.6 GB of 1,000.0 GB free" in text


@pytest.mark.parametrize(("last", "every", "kept"), [("all", 0, 81), (2, 0, 3), (1, 100, 10)])
def test_forecast__counts_the_checkpoints_that_stay(last, every, kept):
    keep = f"config.CHECKPOINT.PIRL={{KEEP_LAST: {last}, KEEP_EVERY: {every}}}"
    text = "\n".join(forecast(compose(PAPER, keep), IMAGENET, 0, MEASURED, free=None))
    assert f"up to {kept} kept" in text  # 800 epochs, one saved in 10


def test_forecast__names_the_workers_that_are_missing(monkeypatch):
    monkeypatch.setattr(module, "usable_cores", lambda: 32)
    config = compose(PAPER, "config.DATA.NUM_DATALOADER_WORKERS=2")
    text = "\n".join(forecast(config, IMAGENET, 0, MEASURED, free=None))
    assert "160 ms a step (100 ms without input)" in text  # 32 · 10 ms / 2
    assert "set config.DATA.NUM_DATALOADER_WORKERS=4" in text
    for cores, advice in [
        (12, "NUM_DATALOADER_WORKERS=3"),
        (8, "has cores for (2)"),
    ]:  # 4 processes
        monkeypatch.setattr(module, "usable_cores", lambda cores=cores: cores)  # for 4 ranks
        text = "\n".join(forecast(config, IMAGENET, 0, MEASURED, free=None))
        assert advice in text


def test_forecast__leaves_out_a_bank_where_there_is_none():
    config = compose("config=benchmark/pirl/linear_imagenet1k")
    text = "\n".join(forecast(config, IMAGENET, 0, MEASURED, free=None))
    assert "memory    2.0 GB measured here at 32 images\n" in text


def test_forecast__divides_the_input_among_the_readers_of_a_cpu():
    more = ["+config/pirl/machines=cpu", "config.DATA.NUM_DATALOADER_WORKERS=3"]
    text = "\n".join(forecast(compose(PAPER, *more), IMAGENET, 0, MEASURED, free=None))
    assert "180 ms a step (100 ms without input)" in text  # 32 · 10 ms / 4
    assert "10.0 ms an image; read before each step by the process and 3 workers" in text


def test_forecast__counts_a_batch_of_micro_batches_once():
    config = compose(
        PAPER, "+config/pirl/machines=1node_8gpu", "config.TRAINER.PIRL_MICRO_BATCHES=4"
    )
    text = "\n".join(forecast(config, IMAGENET, 0, MEASURED, free=None))
    assert "1,001,600 steps of 1,024 images" in text
    assert "2.0 GB measured here at 32 images, one of 4 micro-batches" in text
    assert "13 workers a process keep up" in text  # 128 · 10 ms / 100 ms


def test_forecast__refuses_a_disk_without_room():
    with pytest.raises(SystemExit, match=r"room for two checkpoints of 200 MB, and 300 MB are"):
        forecast(compose(PAPER), IMAGENET, 0, MEASURED, free=3 * 10**8)


def test_dry_run__checks_times_and_writes_nothing(image_folder, tmp_path, monkeypatch, capsys):
    finder.install()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(timed_steps, "_STEPS", 1)
    config = compose(
        "config=pretrain/pirl/quick_jigsaw",
        f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]",
        "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=4",
        "config.LOSS.pirl_loss.num_negatives=8",
        "config.LOSS.pirl_loss.bank.seed=0",
        "config.HOOKS.PIRL_INPUT.autocast=null",
    )
    dry_run(config, node_id=0)
    out = capsys.readouterr().out
    assert "20 images" not in out
    assert "images    20; 80 steps of 4 images" in out
    assert out.splitlines()[-1].startswith("dry run   everything checked")
    assert list(tmp_path.iterdir()) == []


def test_forecast__of_fewer_images_than_a_batch_has_is_of_those():
    config = compose("config=pretrain/pirl/quick_jigsaw", "config.OPTIMIZER.num_epochs=16")
    text = "\n".join(forecast(config, 4, 0, MEASURED, free=None))
    assert "images    4; 16 steps of 4 images" in text
    assert "measured here at 4 images" in text


def test_forecast__counts_one_step_of_one_image():
    config = compose("config=pretrain/pirl/quick_jigsaw", "config.OPTIMIZER.num_epochs=1")
    text = "\n".join(forecast(config, 1, 0, MEASURED, free=None))
    assert "images    1; 1 step of 1 image\n" in text
    assert "measured here at 1 image\n" in text


def test_dry_run__refuses_what_the_run_would(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="DATA_PATHS"):
        dry_run(compose("config=pretrain/pirl/quick_jigsaw"), node_id=0)
    assert list(tmp_path.iterdir()) == []


def tiny(folder, *more):
    return compose(
        "config=pretrain/pirl/quick_jigsaw",
        f"config.DATA.TRAIN.DATA_PATHS=[{folder / 'train'}]",
        "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=4",
        "config.LOSS.pirl_loss.num_negatives=8",
        "config.OPTIMIZER.num_epochs=2",
        *more,
    )


def write_checkpoint_of(config, folder, name, done=0):
    content = {"classy_state_dict": {}, "loss": {}, "iteration": 5, "train_phase_idx": done}
    content |= {"phase_idx": 0, PLUGIN_SECTION: {"settings": resume_settings(config)}}
    folder.mkdir(exist_ok=True)
    torch.save(content, folder / name)


@pytest.mark.parametrize(
    ("name", "done", "said"),
    [
        ("model_final_checkpoint_phase1.torch", 1, "checked; the run is finished: "),
        ("model_iteration5.torch", 0, "start     goes on from "),
    ],
)
def test_dry_run__says_what_the_folder_holds(
    name, done, said, image_folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(module, "measure", lambda *_: MEASURED)
    config = tiny(image_folder, f"config.CHECKPOINT.DIR={tmp_path / 'run'}")
    write_checkpoint_of(config, tmp_path / "run", name, done)
    dry_run(config, node_id=0)
    assert f"{said}{tmp_path / 'run' / name}" in capsys.readouterr().out


def test_dry_run__warns_as_a_run_does(image_folder, tmp_path, monkeypatch, capsys):
    """It showed names of loggers, and of modules."""
    data = shutil.copytree(image_folder, tmp_path / "data") / "train"
    (data / "x.psd").touch()
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(module, "measure", lambda *_: MEASURED)
    dry_run(tiny(data.parent, f"config.CHECKPOINT.DIR={tmp_path / 'run'}"), node_id=0)
    shown = "".join(capsys.readouterr())
    assert f"\nWARNING {data}: 1 .psd file skipped" in shown
    assert "WARNING:" not in shown


def test_dry_run__refuses_a_folder_that_the_run_would(image_folder, tmp_path):
    config = tiny(image_folder, f"config.CHECKPOINT.DIR={tmp_path / 'run'}")
    write_checkpoint_of(config, tmp_path / "run", "model_phase0.torch")
    (tmp_path / "run" / "model_phase0.torch").write_bytes(b"")
    with pytest.raises(SystemExit, match="expected a checkpoint that loads, found none"):
        dry_run(config, node_id=0)


def test_dry_run__refuses_the_gpus_kernel_on_a_cpu(image_folder):
    with pytest.raises(SystemExit, match=r"scores = 'triton' with .*'cpu': expected auto"):
        dry_run(tiny(image_folder, "config.LOSS.pirl_loss.scores=triton"), node_id=0)
