"""The sweeps of Sec. 4: their values and commands, what is run again and what is not, the table."""

import json
import subprocess
import sys

import pytest

from pirl_plugin.evaluation.linear_run import final_checkpoint, linear_top1
from pirl_plugin.quickstart import launchers
from pirl_plugin.quickstart.sweep import command as sweep_command
from tests.helpers.sweeps import finish


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["config.LOSS.pirl_loss.lambda_invariance=0.5"], "the sweep sets config.LOSS.pirl_loss"),
        (["config=pretrain/pirl/npid_8node"], "the sweep sets config in each run"),
        (["--linear", "config.CHECKPOINT.DIR=x"], "the sweep sets config.CHECKPOINT.DIR"),
        (["epochs"], "'epochs' is no override: expected KEY=VALUE"),
        (["--values", "2"], "expected a number from 0 to 1"),
    ],
)
def test_sweep__refuses(arguments, message, image_folder, tmp_path):
    where = ["--data", str(image_folder), "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit, match=message):
        sweep_command.main(["lambda", *where, *arguments])
    assert not (tmp_path / "out").exists()


def test_sweep__refuses_images_that_it_could_not_evaluate_on(image_folder, tmp_path):
    with pytest.raises(SystemExit, match=r"expected train/CLASS/\* and val/CLASS/\*"):
        sweep_command.main(
            ["lambda", "--data", str(image_folder / "train"), "--out", str(tmp_path)]
        )


def test_sweep__skips_what_is_finished(image_folder, tmp_path, host):
    where = ["--scale", "quick", "--data", str(image_folder), "--out", str(tmp_path)]
    finish(tmp_path / "pirl_0" / "pretrain")
    finish(tmp_path / "pirl_0" / "linear", {"res5": 21.0})
    finish(tmp_path / "pirl_0.25" / "pretrain")
    sweep_command.main(["lambda", *where, "--values", "0", "0.25", "0.5"])
    assert host.runs == ["pirl_0.25/linear", "pirl_0.5/pretrain", "pirl_0.5/linear"]
    sweep_command.main(["lambda", *where, "--values", "0.5", "1"])
    assert host.runs[3:] == ["pirl_1/pretrain", "pirl_1/linear"]
    rows = json.loads((tmp_path / "results.json").read_text())["results"]
    # The table holds what earlier calls measured too.
    assert [(row["value"], row["best_top1"], row["best_layer"]) for row in rows] == [
        (0, 21.0, "res5"),
        (0.25, 40.0, "res5"),
        (0.5, 40.0, "res5"),
        (1, 40.0, "res5"),
    ]
    with pytest.raises(SystemExit, match=r"holds the sweep of sweep lambda \(now negatives\)"):
        sweep_command.main(["negatives", *where])


def test_sweep__goes_on_where_it_was_killed(image_folder, tmp_path, host):
    """A final checkpoint may have been cut short, or not been tested yet."""
    cut = tmp_path / "pirl_0" / "pretrain"
    finish(cut)
    final = cut / "model_final_checkpoint_phase1.torch"
    final.write_bytes(final.read_bytes()[:-10])
    finish(tmp_path / "pirl_1" / "pretrain")
    finish(tmp_path / "pirl_1" / "linear", {"res5": 21.0}, tested=False)
    where = ["--scale", "quick", "--data", str(image_folder), "--out", str(tmp_path)]
    sweep_command.main(["lambda", *where, "--values", "0", "1"])
    assert host.runs == ["pirl_0/pretrain", "pirl_0/linear", "pirl_1/linear"]


def test_sweep__names_a_failed_run_at_the_end_and_the_others_go_on(
    image_folder, tmp_path, host, capsys
):
    host.failing = ("pirl_0.25/pretrain", "pirl_0.75/linear")
    where = ["--scale", "quick", "--data", str(image_folder), "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as stopped:
        sweep_command.main(["lambda", *where])
    message = str(stopped.value)  # a text: the exit status is 1
    assert "2 of 5 models failed; the same command starts them again" in message
    assert "PIRL, λ = 0.25: pre-training failed with exit status -9" in message
    assert "PIRL, λ = 0.75: linear failed" in message
    assert "pirl_0.25/linear" not in host.runs
    assert host.runs[-1] == "pirl_1/linear"
    assert "| 0.25 |  |" in capsys.readouterr().out
    assert "| 0.5 | 40.0 res5 |" in (tmp_path / "results.md").read_text()

    host.failing, host.runs = (), []
    sweep_command.main(["lambda", *where])
    assert host.runs == ["pirl_0.25/pretrain", "pirl_0.25/linear", "pirl_0.75/linear"]


def test_sweep__survives_a_folder_that_cannot_be_written(image_folder, tmp_path, monkeypatch):
    def run_host(overrides, folder, title, threads, held, tool):
        finish(folder, {"res5": 40.0} if folder.name == "linear" else None)

    monkeypatch.setattr(launchers, "run_host", run_host)
    (tmp_path / "pirl_0").write_text("in the way")
    where = ["--scale", "quick", "--data", str(image_folder), "--out", str(tmp_path)]
    with pytest.raises(SystemExit, match="1 of 2 models failed"):
        sweep_command.main(["lambda", *where, "--values", "0", "1"])
    assert linear_top1(tmp_path / "pirl_1" / "linear") == {"res5": 40.0}


def test_permutations__measures_voc07_after_the_linear_benchmark(
    image_folder, voc07, tmp_path, host
):
    out = tmp_path / "out"
    where = ["--scale", "quick", "--data", str(image_folder), "--out", str(out)]
    sweep_command.main(["permutations", *where, "--voc07", str(voc07), "--values", "1"])
    assert host.runs == ["pirl_1/pretrain", "pirl_1/linear", "pirl_1/voc07"]
    (row,) = json.loads((out / "results.json").read_text())["results"]
    assert (row["best_voc07_map"], row["best_top1"]) == (pytest.approx(71), 40.0)
    sweep_command.main(["permutations", *where, "--voc07", str(voc07), "--values", "1"])
    assert len(host.runs) == 3


def test_permutations__voc07_is_added_when_all_else_is_done(image_folder, voc07, tmp_path, host):
    where = ["--scale", "quick", "--data", str(image_folder), "--out", str(tmp_path / "out")]
    sweep_command.main(["permutations", *where, "--values", "1"])
    sweep_command.main(["permutations", *where, "--voc07", str(voc07), "--values", "1"])
    assert host.runs[2:] == ["pirl_1/voc07"]
    other = tmp_path / "other"
    (other / "ImageSets" / "Main").mkdir(parents=True)
    with pytest.raises(SystemExit, match=r"pirl_1/voc07 was made with VOC07 /.* \(now .*other\)"):
        sweep_command.main(["permutations", *where, "--voc07", str(other), "--values", "1"])


def test_sweep__goes_on_with_other_resources(image_folder, tmp_path, host):
    where = ["--scale", "quick", "--data", str(image_folder), "--out", str(tmp_path)]
    asked = ["lambda", *where, "--values", "0", "config.OPTIMIZER.num_epochs=1"]
    finish(tmp_path / "pirl_0" / "pretrain")
    earlier = {"sweep": "lambda", "scale": "quick", "data": str(image_folder), "linear": ""}
    given = "config.OPTIMIZER.num_epochs=1 config.SLURM.MEM_GB=1"  # as earlier versions wrote it
    (tmp_path / "sweep.json").write_text(json.dumps({**earlier, "pre-training": given}))
    resources = ["config.SLURM.MEM_GB=250", "config.DATA.NUM_DATALOADER_WORKERS=2"]
    sweep_command.main([*asked, *resources, "--linear", "config.SLURM.MEM_GB=9"])
    assert host.runs == ["pirl_0/linear"]
    sweep_command.main(asked)
    found = json.loads((tmp_path / "results.json").read_text())["settings"]
    assert (found["pre-training"], found["linear"]) == ("config.OPTIMIZER.num_epochs=1", "")
    with pytest.raises(SystemExit, match="it holds the sweep of pre-training config"):
        sweep_command.main(["lambda", *where, "config.OPTIMIZER.num_epochs=2"])


def test_sweep__linear_settings_are_those_of_the_runs_that_began(image_folder, tmp_path, host):
    """Forgotten at first, ``--linear`` is added where no linear benchmark has begun to train."""
    host.failing = ("pirl_0/linear",)
    where = ["--scale", "quick", "--data", str(image_folder), "--out", str(tmp_path)]
    asked = ["lambda", *where, "--values", "0"]
    with pytest.raises(SystemExit, match="1 of 1 models failed"):
        sweep_command.main(asked)
    host.failing = ()
    linear = ["--linear", "+config/pirl/linear=resnet10"]
    sweep_command.main([*asked, *linear])
    assert host.runs[2:] == ["pirl_0/linear"]
    said = (
        r"pirl_0/linear was made with linear \+config/pirl/linear=resnet10 \(now none\): expected "
        r"the same; .*remove .*/\*/linear"
    )
    with pytest.raises(SystemExit, match=said):
        sweep_command.main(asked)


def test_permutations__refuses_a_folder_that_is_not_voc07(image_folder, tmp_path, capsys):
    where = ["--data", str(image_folder), "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit):
        sweep_command.main(["permutations", *where, "--voc07", str(tmp_path)])
    assert f"--voc07 = {tmp_path}: expected VOCdevkit/VOC2007" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_sweep__waits_for_a_run_that_outlived_another_sweep(
    image_folder, tmp_path, host, monkeypatch, capsys
):
    folder = tmp_path / "pirl_0" / "pretrain"
    folder.mkdir(parents=True)
    code = (
        f"import fcntl, sys; file = open({str(folder / 'lock')!r}, 'a')\n"
        "fcntl.flock(file, fcntl.LOCK_EX); print('locked', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout.readline() == b"locked\n"

    def end_it(seconds):
        assert seconds == 5
        assert host.runs == ["pirl_1/pretrain", "pirl_1/linear"]
        finish(folder)
        other.communicate()

    monkeypatch.setattr(launchers.time, "sleep", end_it)
    where = ["--scale", "quick", "--data", str(image_folder), "--out", str(tmp_path)]
    sweep_command.main(["lambda", *where, "--values", "0", "1"])
    assert "PIRL, λ = 0: pre-training: under way already" in capsys.readouterr().out
    assert host.runs[2:] == ["pirl_0/linear"]


@pytest.mark.slow
def test_sweep__runs_through_the_host(image_folder, tmp_path, capfd):
    """The engine pre-trains and evaluates two values, of which one fails at first."""
    out = tmp_path / "out"
    arguments = [
        "permutations", "--scale", "quick", "--data", str(image_folder), "--out", str(out),
        "--values", "1", "10",
        "config.OPTIMIZER.num_epochs=2", "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=4",
        "--linear", "config.OPTIMIZER.num_epochs=2",
    ]  # fmt: skip
    (out / "jigsaw_10" / "pretrain").mkdir(parents=True)
    (out / "jigsaw_10" / "pretrain" / "model_phase0.torch").write_bytes(b"nothing to resume from")
    with pytest.raises(SystemExit, match="1 of 3 models failed"):
        sweep_command.main(arguments)
    (out / "jigsaw_10" / "pretrain" / "model_phase0.torch").unlink()
    capfd.readouterr()
    sweep_command.main(arguments)
    assert "PIRL" not in capfd.readouterr().out.partition("| \\|T\\|")[0]  # nothing of it is rerun
    rows = json.loads((out / "results.json").read_text())["results"]
    assert [(row["method"], row["value"]) for row in rows] == [
        ("PIRL", 1),
        ("PIRL", 10),
        ("Jigsaw", 10),
    ]
    assert all(0 <= row["best_top1"] <= 100 for row in rows)
    for folder in ("pirl_1", "pirl_10", "jigsaw_10"):
        assert final_checkpoint(out / folder / "pretrain")
        log = (out / folder / "linear" / "log.txt").read_text()
        assert "Loaded: trunk.base_model._feature_blocks.conv1.weight" in log
    assert (out / "figure.png").stat().st_size > 5000
