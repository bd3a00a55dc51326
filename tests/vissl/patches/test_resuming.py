"""What a run goes on from, and what it refuses; VISSL's approaches go on as the host does."""

import os

import pytest
import torch
from vissl.utils import checkpoint as host
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin.checkpoints.host_checkpoint import PLUGIN_SECTION
from pirl_plugin.checkpoints.initial_weights import RECORD, follow_links, initial_weights
from pirl_plugin.checkpoints.settings import resume_settings
from pirl_plugin.checkpoints.training_run import write_run_config

OURS = ("config=pretrain/pirl/quick_jigsaw", "config.OPTIMIZER.num_epochs=4")
THEIRS = ("config=pretrain/simclr/simclr_8node_resnet", "config.OPTIMIZER.num_epochs=4")


def compose(*overrides):
    composed = compose_hydra_configuration(list(overrides))
    return convert_to_attrdict(composed, dump_config=False)[1]


def write(folder, name, config=None, **content):
    """A checkpoint of the host with next to nothing in it."""
    least = {"classy_state_dict": {}, "loss": {}, "iteration": 5, "train_phase_idx": 0}
    content = {**least, "phase_idx": 0, **content}
    if config is not None:
        settings, weights = resume_settings(config), initial_weights(config)
        content[PLUGIN_SECTION] = {"settings": settings, RECORD: weights, "samples_done": 0}
    torch.save(content, folder / name)
    return str(folder / name)


def launch(config, folder):
    """What the host's launcher asks before it starts anything: finished, or resumed from what?"""
    if host.is_training_finished(config, str(folder)):
        return "finished"
    return host.get_resume_checkpoint(config, str(folder))


def test_newest__is_by_steps_done(tmp_path):
    config = compose(*OURS)
    assert launch(config, tmp_path) is None
    write(tmp_path, "model_phase0.torch", iteration=10)
    middle = write(tmp_path, "model_iteration12.torch", iteration=12)
    assert launch(config, tmp_path) == middle
    ended = write(tmp_path, "model_phase1.torch", iteration=20, train_phase_idx=1)
    write(tmp_path, "model_iteration20.torch", iteration=20)
    assert launch(config, tmp_path) == ended
    config.CHECKPOINT.LATEST_CHECKPOINT_RESUME_FILE_NUM = 3
    assert launch(config, tmp_path) == middle
    config.CHECKPOINT.AUTO_RESUME = False
    assert launch(config, tmp_path) is None


def test_finished__means_that_the_final_file_loads(tmp_path, caplog):
    config = compose(*OURS)
    before = write(tmp_path, "model_phase2.torch", iteration=15, train_phase_idx=2)
    final = "model_final_checkpoint_phase3.torch"
    write(tmp_path, final, iteration=20, train_phase_idx=3)
    assert launch(config, tmp_path) == "finished"
    os.truncate(tmp_path / final, 0)
    (tmp_path / "checkpoint.torch").symlink_to(final)
    config.CHECKPOINT.USE_SYMLINK_CHECKPOINT_FOR_RESUME = True
    assert launch(config, tmp_path) == before
    assert f"Skipped {tmp_path}/{final}: it is empty; going on from {before}" in caplog.text
    assert not config.CHECKPOINT.USE_SYMLINK_CHECKPOINT_FOR_RESUME  # it points to the damaged one


def test_finished__means_that_its_last_epoch_was_tested(tmp_path):
    config = compose(
        "config=benchmark/pirl/quick_linear",
        "config.DATA.TRAIN.DATA_PATHS=[nowhere]",
        "config.DATA.TEST.DATA_PATHS=[nowhere]",
        "config.OPTIMIZER.num_epochs=2",
    )
    final = write(tmp_path, "model_final_checkpoint_phase1.torch", phase_idx=2, train_phase_idx=1)
    metrics = tmp_path / "metrics.json"
    for written in (None, '{"phase_idx": 2}\n', '{"phase_idx": 2}\n{"phase_'):
        if written is not None:
            metrics.write_text(written)
        assert launch(config, tmp_path) == final
    metrics.write_text('{"phase_idx": 2}\n{"phase_idx": 3}\n')
    assert launch(config, tmp_path) == "finished"


def test_resume__never_starts_over_silently(tmp_path):
    (tmp_path / "model_phase0.torch").write_bytes(b"")
    message = f"config.CHECKPOINT.DIR = {tmp_path}: expected a checkpoint that loads, found none"
    with pytest.raises(SystemExit, match=message):
        launch(compose(*OURS), tmp_path)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            ("config=pretrain/pirl/quick_jigsaw", "+config/pirl/models=resnet18"),
            r"config\.MODEL\.TRUNK\.\S*DEPTH = 18: expected 10",
        ),
        (("config=pretrain/pirl/quick_jigsaw_baseline",), r"config\.MODEL\.HEAD\.PARAMS = "),
        ((*OURS[:1], "config.OPTIMIZER.num_epochs=2"), "num_epochs = 2: expected more than the 2"),
    ],
)
def test_resume__refuses_another_run(tmp_path, other, message):
    write(tmp_path, "model_phase1.torch", compose(*OURS), train_phase_idx=1)
    with pytest.raises(SystemExit, match=message):
        launch(compose(*other), tmp_path)


def benchmark(file, ensemble=False, folder="out"):
    if not ensemble:
        return compose(
            "config=benchmark/pirl/quick_linear",
            f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={file}",
            "config.OPTIMIZER.num_epochs=4",
            f"config.CHECKPOINT.DIR={folder}",
        )
    config = compose("config=benchmark/pirl/ensemble_imagenet1k", "config.OPTIMIZER.num_epochs=4")
    config.MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES = [str(file), str(file)]
    return config


def trunk_files(folder, *names):
    folder.mkdir()
    for i, name in enumerate(names):
        torch.save({"classy_state_dict": {"weight": torch.full((3,), float(i))}}, folder / name)
    return [folder / name for name in names]


@pytest.mark.parametrize("ensemble", [False, True])
@pytest.mark.parametrize("final", [False, True])
def test_resume__refuses_the_trunk_of_another_file(ensemble, final, tmp_path):
    """The host does not read the file again: figures of A's trunk were those of B."""
    a, b = trunk_files(tmp_path / "pretrain", "a.torch", "b.torch")
    (tmp_path / "out").mkdir()
    name, phase = ("model_final_checkpoint_phase3", 3) if final else ("model_phase1", 1)
    own = write(tmp_path / "out", f"{name}.torch", benchmark(a, ensemble), train_phase_idx=phase)
    (tmp_path / "out" / "metrics.json").write_text('{"phase_idx": 9}')
    expected = f" = {b}.*: expected {a}.*, as it was when the run in {own} started from it; give"
    with pytest.raises(SystemExit, match=expected) as refused:
        launch(benchmark(b, ensemble), tmp_path / "out")
    assert len(str(refused.value).splitlines()) == 1
    write(tmp_path / "out", f"{name}.torch", train_phase_idx=phase)  # of an earlier version
    assert launch(benchmark(b, ensemble), tmp_path / "out") == ("finished" if final else own)


def test_resume__takes_the_same_file_by_another_name(tmp_path, monkeypatch):
    (file,) = trunk_files(tmp_path / "pretrain", "a.torch")
    (tmp_path / "out").mkdir()
    own = write(tmp_path / "out", "model_phase1.torch", benchmark(file), train_phase_idx=1)
    (tmp_path / "link.torch").symlink_to(file)
    monkeypatch.chdir(tmp_path)
    for name in (file, "pretrain/a.torch", "link.torch"):
        assert launch(benchmark(name), tmp_path / "out") == own
    os.rename(tmp_path / "pretrain", tmp_path / "moved")
    assert launch(benchmark("moved/a.torch"), tmp_path / "out") == own
    with pytest.raises(SystemExit, match=r"PARAMS_FILE = '': expected "):
        launch(benchmark(""), tmp_path / "out")
    trunk_files(tmp_path / "pretrain", "b.torch", "a.torch")  # trained again
    with pytest.raises(SystemExit, match=f"PARAMS_FILE = {file}: expected {file}, as it was when"):
        launch(benchmark(file), tmp_path / "out")


def test_resume__needs_not_the_file_that_it_started_from(tmp_path):
    (file,) = trunk_files(tmp_path / "pretrain", "a.torch")
    out = tmp_path / "out"
    out.mkdir()
    own = write(out, "model_phase1.torch", benchmark(file), train_phase_idx=1)
    file.unlink()
    assert launch(benchmark(file), out) == own
    with pytest.raises(SystemExit, match=rf"b\.torch: expected {file}, as it was"):
        launch(benchmark(tmp_path / "b.torch"), out)


def test_start__is_from_what_the_link_to_the_newest_checkpoint_leads_to(tmp_path):
    early, late = trunk_files(tmp_path / "pretrain", "model_phase49.torch", "model_phase99.torch")
    link = tmp_path / "pretrain" / "checkpoint.torch"
    link.symlink_to(early.name)
    (tmp_path / "linked").symlink_to(link)
    (tmp_path / "named.safetensors").symlink_to(early.parent / "a1b2c3")  # by its name of a format
    config, other = benchmark(link), benchmark(tmp_path / "named.safetensors")
    for one in (config, other):
        follow_links(one)
    link.unlink()
    link.symlink_to(late.name)
    assert config.MODEL.WEIGHTS_INIT.PARAMS_FILE == str(early)
    assert other.MODEL.WEIGHTS_INIT.PARAMS_FILE == str(tmp_path / "named.safetensors")
    members = benchmark(tmp_path / "linked", ensemble=True)
    follow_links(members)
    assert members.MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES == [str(late)] * 2


def test_resume__says_how_to_lengthen_a_finished_run(tmp_path):
    config = compose(*OURS)
    path = write(tmp_path, "model_final_checkpoint_phase3.torch", config, train_phase_idx=3)
    assert launch(config, tmp_path) == "finished"
    config.OPTIMIZER.num_epochs = 16
    with pytest.raises(SystemExit, match="num_epochs = 16: expected 4, after which") as refused:
        launch(config, tmp_path)
    assert f"PARAMS_FILE={path}" in str(refused.value)
    os.rename(path, tmp_path / "model_phase3.torch")  # as the sentence says
    assert launch(config, tmp_path) == str(tmp_path / "model_phase3.torch")


def test_finished_run__is_not_another_models(tmp_path):
    write(tmp_path, "model_final_checkpoint_phase3.torch", compose(*OURS), train_phase_idx=3)
    assert launch(compose(*OURS), tmp_path) == "finished"
    other = compose(*OURS, "+config/pirl/models=resnet18")
    with pytest.raises(SystemExit, match=r"config\.MODEL\.TRUNK.*: expected .* as in "):
        launch(other, tmp_path)


@pytest.mark.parametrize(
    "change", ["SEED_VALUE=7", "LOSS.pirl_loss.temperature=0.3", "OPTIMIZER.weight_decay=0.1"]
)
def test_finished_run__is_not_one_of_other_values(change, tmp_path):
    """It was said to have succeeded, below a page of values that it was not made with."""
    write(tmp_path, "model_final_checkpoint_phase3.torch", compose(*OURS), train_phase_idx=3)
    write_run_config(compose(*OURS), tmp_path)
    elsewhere = "config.DATA.NUM_DATALOADER_WORKERS=7"
    assert launch(compose(*OURS, elsewhere), tmp_path) == "finished"
    key = change.partition("=")[0]
    with pytest.raises(SystemExit, match=rf"config\.{key} = .*: expected .* was made to its end"):
        launch(compose(*OURS, f"config.{change}"), tmp_path)
    with pytest.raises(SystemExit, match="the global batch = 7: expected 32, with which the run"):
        launch(compose(*OURS, "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=7"), tmp_path)


def test_vissls_approaches__resume_as_the_host_does(tmp_path):
    config = compose(*THEIRS)
    for name in ("model_phase0.torch", "model_phase3.torch"):
        (tmp_path / name).write_bytes(b"")
    assert launch(config, tmp_path) == f"{tmp_path}/model_phase3.torch"
    (tmp_path / "model_final_checkpoint_phase3.torch").write_bytes(b"")
    assert launch(config, tmp_path) == "finished"


def test_vissls_approaches__save_the_same_files(tmp_path):
    content = {"classy_state_dict": {"weight": torch.tensor(float("nan"))}}
    for phase in range(4):
        writer = host.CheckpointWriter(str(tmp_path), phase == 3, "phase", phase, "disk")
        writer.save_consolidated_checkpoint(dict(content))
    final = "model_final_checkpoint_phase3.torch"
    assert {path.name for path in tmp_path.iterdir()} == {
        *(f"model_phase{i}.torch" for i in range(3)), final, "checkpoint.torch"
    }  # fmt: skip
    assert os.readlink(tmp_path / "checkpoint.torch") == final
    saved = torch.load(tmp_path / final)
    assert set(saved) == {"classy_state_dict", "type"}


def test_resume__names_settings_that_differ(tmp_path, caplog):
    """It went on with another crop, seed and rate without a word."""
    before = compose(*OURS)
    path = write(tmp_path, "model_phase0.torch", before)
    write_run_config(before, tmp_path)
    assert launch(compose(*OURS), tmp_path) == path
    assert not caplog.text
    changed = compose(*OURS, "config.DATA.TRAIN.VIEWS.image_size=48", "config.SEED_VALUE=3")
    assert launch(changed, tmp_path) == path
    assert f"{path} goes on with other settings than it was made with: " in caplog.text
    assert "config.SEED_VALUE = 3 (was 0)" in caplog.text
    assert ".image_size = 48 (was 64)" in caplog.text
