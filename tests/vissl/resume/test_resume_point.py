"""What a run resumes from, and what it refuses."""

import os

import pytest
import torch
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin.checkpoints.read import SECTION
from pirl_plugin.system.failures import Refused
from pirl_plugin.vissl.adapters.dataset import open_datasets
from pirl_plugin.vissl.resume.folder import resume_point
from pirl_plugin.vissl.resume.record import make_checkpoint_record
from pirl_plugin.vissl.run.launch import launch_distributed

OURS = ("config=pretrain/pirl/quick_jigsaw", "config.OPTIMIZER.num_epochs=4")
FINAL = "model_final_checkpoint_phase3.torch"


def compose(*overrides):
    composed = compose_hydra_configuration(list(overrides))
    return convert_to_attrdict(composed, dump_config=False)[1]


def write(folder, name, config, **content):
    """Write a nearly empty VISSL checkpoint."""
    section = {**make_checkpoint_record(config, {}), "samples_done": 0}
    content = {
        "classy_state_dict": {"hooks": {SECTION: section}},
        "loss": {"_extra_state": {}},
        "iteration": 5,
        "iteration_num": 5,
        "train_phase_idx": 0,
        "phase_idx": 0,
        **content,
    }
    torch.save(content, folder / name)
    return folder / name


def launch(config, folder):
    """Return what the launcher asks before starting a rank: finished, or resumed from what?"""
    point = resume_point(config, folder)
    return "finished" if point.is_finished else point.path


def test_finished__requires_loadable_final_file(tmp_path, caplog):
    config = compose(*OURS)
    assert launch(config, tmp_path) is None
    before = write(tmp_path, "model_phase2.torch", config, iteration=15)
    write(tmp_path, FINAL, config, iteration=20, train_phase_idx=3)
    assert launch(config, tmp_path) == "finished"
    os.truncate(tmp_path / FINAL, 0)
    assert launch(config, tmp_path) == before
    assert f"Skipped {tmp_path / FINAL}" in caplog.text


def test_finished__requires_tested_last_epoch(tmp_path):
    data = [f"config.DATA.{split}.DATA_PATHS=[nowhere]" for split in ("TRAIN", "TEST")]
    config = compose("config=benchmark/pirl/quick_linear", *data, "config.OPTIMIZER.num_epochs=2")
    name = "model_final_checkpoint_phase1.torch"
    final = write(tmp_path, name, config, phase_idx=2, train_phase_idx=1)
    metrics = tmp_path / "metrics.json"
    for written in (None, '{"phase_idx": 2}\n', '{"phase_idx": 2}\n{"phase_'):
        if written is not None:
            metrics.write_text(written)
        assert launch(config, tmp_path) == final
    metrics.write_text('{"phase_idx": 2}\n{"phase_idx": 3}\n')
    assert launch(config, tmp_path) == "finished"


def test_finished__refuses_different_images(image_folder, tmp_path):
    key = "config.DATA.TRAIN.DATA_PATHS"
    config = compose(*OURS, f"{key}=[{image_folder / 'train'}]")
    final = write(tmp_path, FINAL, config, iteration=20, train_phase_idx=3)
    content = torch.load(final)
    identity = open_datasets(config, ["TRAIN"])["train"].identity()
    content["classy_state_dict"]["hooks"][SECTION]["images"] = {"TRAIN": identity}
    torch.save(content, final)
    assert launch(config, tmp_path) == "finished"
    with pytest.raises(Refused, match=r"from a run with other training images or .*, now "):
        launch(compose(*OURS, f"{key}=[{image_folder / 'val'}]"), tmp_path)


def test_resume__never_starts_over_silently(tmp_path):
    (tmp_path / "model_phase0.torch").write_bytes(b"")
    message = f"{tmp_path}: none of model_phase0.torch can be loaded"
    with pytest.raises(ValueError, match=message):
        launch(compose(*OURS), tmp_path)


@pytest.mark.parametrize(
    "name", [pytest.param("model_phase1.torch", marks=pytest.mark.slow), FINAL]
)
def test_resume__refuses_different_run(name, tmp_path):
    write(tmp_path, name, compose(*OURS), train_phase_idx=1)
    for garbage in (b"", b"{", b"\xff", b"a: 1"):
        (tmp_path / "train_config.yaml").write_bytes(garbage)
        assert launch(compose(*OURS), tmp_path) in ("finished", tmp_path / name)
    with pytest.raises(Refused, match=r"temperature was 0\.2, is 0\.5"):
        launch(compose(*OURS, "config.LOSS.pirl_loss.temperature=0.5"), tmp_path)
    # The optimizer's state would keep the old values.
    optimizer = ["config.OPTIMIZER.momentum=0.8", "config.OPTIMIZER.nesterov=true"]
    with pytest.raises(Refused, match=r"momentum was 0\.9, is 0\.8; .*nesterov was false, is true"):
        launch(compose(*OURS, *optimizer), tmp_path)
    with pytest.raises(Refused, match=r"config\.MODEL\.WEIGHTS_INIT\.PARAMS_FILE=.*phase"):
        launch(
            compose(OURS[0], "config.OPTIMIZER.num_epochs=8"), tmp_path
        )  # longer training is allowed
    with pytest.raises(Refused, match="is from another run"):
        launch(compose("config=benchmark/pirl/quick_linear"), tmp_path)


def test_new_run__does_not_overwrite_finished_run(tmp_path):
    config = compose(*OURS, "config.CHECKPOINT.AUTO_RESUME=false")
    write(tmp_path, "model_phase2.torch", config, iteration=15)
    assert launch(config, tmp_path) is None
    write(tmp_path, FINAL, config, iteration=20, train_phase_idx=3)
    assert launch(config, tmp_path) == "finished"
    config.CHECKPOINT.OVERWRITE_EXISTING = True
    assert launch(config, tmp_path) is None


@pytest.mark.parametrize("links", [True, False])
def test_finished_run__has_no_link_to_older_checkpoint(links, tmp_path, monkeypatch, capsys):
    """The run was killed between the last checkpoint and the link, or a quota forbids the link."""
    config = compose(*OURS, f"config.CHECKPOINT.DIR={tmp_path}")
    write(tmp_path, FINAL, config, iteration=20, train_phase_idx=3)
    link = tmp_path / "checkpoint.torch"
    link.symlink_to("model_phase2.torch")
    if not links:
        monkeypatch.setattr(os, "symlink", lambda *args: os.stat("/proc/self/fd/none"))
    launch_distributed(config, 0, "train", None, original=None)
    assert os.path.lexists(link) == links
    if links:
        assert os.readlink(link) == FINAL
    else:
        assert f"{link} was not written" in capsys.readouterr().out


def test_unwritable_folder__is_named_with_the_reason(tmp_path):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "run"
    config = compose(*OURS, f"config.CHECKPOINT.DIR={folder}")
    with pytest.raises(SystemExit, match=f"Not a directory: {folder}. Choose another path."):
        launch_distributed(config, 0, "train", None, original=None)
