"""The sweeps of Sec. 4: their values and commands, what is run again and what is not, the table."""

import json
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin.evaluation.linear_run import final_checkpoint, linear_top1
from pirl_plugin.experiments import sweep_command, sweep_launch
from pirl_plugin.experiments.sweep_values import points

# Sec. 4 of the paper.
VALUES = {
    "lambda": {"PIRL": [0, 0.25, 0.5, 0.75, 1]},
    "permutations": {
        "PIRL": [1, 10, 100, 1000, 10000, 362880],
        "Jigsaw": [10, 100, 1000, 10000],
    },
    "negatives": {"PIRL": [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768]},
}


def finish(folder, top1=None, tested=True):
    """What the host leaves of two epochs; of a linear benchmark where ``top1`` is given."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "model_final_checkpoint_phase1.torch", "w") as file:
        file.writestr("data.pkl", "weights")
    if top1 is not None:
        lines = [
            {"test_accuracy_list_meter": {"top_1": {"res5": 1.0}}, "train_phase_idx": 0},
            {"train_accuracy_list_meter": {"top_1": {"res5": 99.0}}, "train_phase_idx": 1},
            {"test_accuracy_list_meter": {"top_1": top1}, "train_phase_idx": 1},
        ]
        lines = lines if tested else lines[:-1]
        (folder / "metrics.json").write_text("".join(json.dumps(line) + "\n" for line in lines))


def finish_svm(folder, mean_ap):
    """What the host leaves of the SVMs of one layer."""
    (folder / "res5").mkdir(parents=True)
    np.save(folder / "res5" / "test_ap.npy", np.full((20, 1), mean_ap / 100))
    settings = {"LINEAR_EVAL_FEAT_POOL_OPS_MAP": [["res5", ["Identity", []]]]}
    config = {"MODEL": {"FEATURE_EVAL_SETTINGS": settings}}
    (folder / "train_config.yaml").write_text(yaml.safe_dump(config))


def commands(printed):
    return [shlex.split(line) for line in printed.splitlines() if not line.startswith("#")]


def compose(command):
    """Configuration of a command ``pirl-plugin train …``."""
    assert command[:2] == ["pirl-plugin", "train"]
    composed = compose_hydra_configuration(command[2:])
    return convert_to_attrdict(composed, dump_config=False)[1]


def compose_plain(overrides):
    return convert_to_attrdict(compose_hydra_configuration(overrides), dump_config=False)[1]


def dry_run(capsys, name, *arguments):
    sweep_command.main([name, "--dry-run", *map(str, arguments)])
    return commands(capsys.readouterr().out)


@pytest.fixture
def host(monkeypatch):
    """In place of the host: notes the folders of the runs, leaves what it would, fails at will."""

    class Host:
        def __init__(self):
            self.runs = []
            self.failing = ()

        def __call__(self, overrides, folder, title, threads, held, tool):
            name = f"{folder.parent.name}/{folder.name}"
            self.runs.append(name)
            assert not list(folder.glob("model_final*"))  # it would take the run for finished
            if name in self.failing:
                raise SystemExit(f"pirl_plugin: {title} failed with exit status -9; the end of …")
            assert (tool == "train_svm.py") == (folder.name == "voc07")
            if tool is not None:
                finish_svm(folder, 71.0)
                return
            finish(folder, {"res4": 30.0, "res5": 40.0} if folder.name == "linear" else None)

    host = Host()
    monkeypatch.setattr(sweep_launch, "run_host", host)
    return host


@pytest.mark.parametrize("name", VALUES)
def test_points__are_the_papers(name):
    assert points(name, None) == [(m, v) for m, values in VALUES[name].items() for v in values]


@pytest.mark.parametrize(
    ("name", "chosen", "expected"),
    [
        ("lambda", ["0.5", "0"], [("PIRL", 0), ("PIRL", 0.5)]),
        ("lambda", ["1.0", "0.1"], [("PIRL", 0.1), ("PIRL", 1)]),
        ("permutations", ["1", "20"], [("PIRL", 1), ("PIRL", 20), ("Jigsaw", 20)]),
        ("permutations", ["362880"], [("PIRL", 362880)]),
        ("negatives", ["65536"], [("PIRL", 65536)]),
    ],
)
def test_points__can_be_chosen(name, chosen, expected):
    found = points(name, chosen)
    assert found == expected
    assert [type(value) for _, value in found] == [type(value) for _, value in expected]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lambda", "1.5", "'1.5' for λ; expected a number from 0 to 1"),
        ("lambda", "half", "'half' for λ; expected a number"),
        ("permutations", "0", r"'0' for \|T\|; expected a whole number from 1 to 362880"),
        ("permutations", "10.5", "expected a whole number"),
        ("negatives", "0", "expected a whole number of at least 1"),
    ],
)
def test_points__refuse_other_values(name, value, message):
    with pytest.raises(ValueError, match=message):
        points(name, [value])


def test_quick_commands__are_exact(image_folder, tmp_path, capsys):
    train, val, out = image_folder / "train", image_folder / "val", tmp_path / "out"
    found = dry_run(
        capsys, "lambda", "--scale", "quick", "--data", image_folder, "--out", out,
        "--values", "0.25", "config.LOG_FREQUENCY=1", "--linear", "config.OPTIMIZER.num_epochs=2",
    )  # fmt: skip
    assert found == [
        [
            "pirl-plugin",
            "train",
            "config=pretrain/pirl/quick_jigsaw",
            f"config.DATA.TRAIN.DATA_PATHS=[{train}]",
            "config.OPTIMIZER.num_epochs=6000",  # 120,000 images / 20
            "config.LOSS.pirl_loss.num_negatives=10",  # half of them
            "config.LOG_FREQUENCY=1",
            "config.LOSS.pirl_loss.lambda_invariance=0.25",
            f"config.CHECKPOINT.DIR={out}/pirl_0.25/pretrain",
        ],
        [
            "pirl-plugin",
            "train",
            "config=benchmark/pirl/quick_linear",
            f"config.DATA.TRAIN.DATA_PATHS=[{train}]",
            f"config.DATA.TEST.DATA_PATHS=[{val}]",
            "config.MODEL.HEAD.NUM_CLASSES=2",
            f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={out}/pirl_0.25/pretrain/checkpoint.torch",
            "config.OPTIMIZER.num_epochs=2",
            f"config.CHECKPOINT.DIR={out}/pirl_0.25/linear",
        ],
    ]
    assert not out.exists()


@pytest.mark.parametrize("scale", ["quick", "paper"])
@pytest.mark.parametrize("name", VALUES)
def test_pretraining_commands__compose_to_the_swept_values(
    name, scale, image_folder, tmp_path, capsys
):
    arguments = [name, "--scale", scale, "--data", image_folder, "--out", tmp_path]
    found = dry_run(capsys, *arguments)
    expected = [(m, v) for m, values in VALUES[name].items() for v in values]
    assert len(found) == 2 * len(expected)
    for (method, value), command, linear in zip(expected, found[::2], found[1::2], strict=True):
        config = compose(command)
        (transform,) = config.DATA.TRAIN.TRANSFORMS
        assert config.CHECKPOINT.DIR == f"{tmp_path}/{method.lower()}_{value}/pretrain"
        assert linear[-1] == f"config.CHECKPOINT.DIR={tmp_path}/{method.lower()}_{value}/linear"
        # What is not swept is that of the analysis, or of a quick run.
        found_here = {"lambda": 0.5, "negatives": 4096 if scale == "paper" else 10}
        found_here |= {"permutations": None, name: value}
        assert transform.get("num_permutations") == found_here["permutations"]
        assert config.OPTIMIZER.num_epochs == (400 if scale == "paper" else 6000)
        if method == "PIRL":
            assert config.LOSS.pirl_loss.lambda_invariance == found_here["lambda"]
            assert config.LOSS.pirl_loss.num_negatives == found_here["negatives"]
        else:
            assert transform["name"] == "PredictJigsaw"
            assert config.MODEL.HEAD.PARAMS[-1][1]["dims"][-1] == value


def test_paper_linear__is_the_papers_benchmark(image_folder, tmp_path, capsys):
    out = tmp_path / "out"
    _, linear = dry_run(capsys, "negatives", "--data", image_folder, "--out", out, "--values", 64)
    assert linear[2] == "config=benchmark/pirl/linear_imagenet1k"
    config = compose(linear)
    assert config.OPTIMIZER.num_epochs == 28
    assert config.DATA.TEST.DATA_PATHS == [str(image_folder / "val")]
    checkpoint = f"{out}/pirl_64/pretrain/checkpoint.torch"
    assert config.MODEL.WEIGHTS_INIT.PARAMS_FILE == checkpoint


def test_overrides__take_the_place_of_ours_and_reach_those_they_are_for(
    image_folder, tmp_path, capsys
):
    given = ["+config/pirl/epochs=epochs_200", "config.LOSS.pirl_loss.estimator=info_nce"]
    where = ["--data", image_folder, "--out", tmp_path, "--values", "10", "--", *given]
    pirl, _, jigsaw, _ = dry_run(capsys, "permutations", *where)
    assert compose(pirl).OPTIMIZER.num_epochs == 200
    assert "+config/pirl/epochs=analysis_400" not in pirl
    assert given[1] in pirl
    assert compose(jigsaw).OPTIMIZER.num_epochs == 200
    assert given[1] not in jigsaw  # its loss has no such section


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
    """The host takes a final checkpoint for the end, whole or not, tested or not."""
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

    monkeypatch.setattr(sweep_launch, "run_host", run_host)
    (tmp_path / "pirl_0").write_text("in the way")
    where = ["--scale", "quick", "--data", str(image_folder), "--out", str(tmp_path)]
    with pytest.raises(SystemExit, match="1 of 2 models failed"):
        sweep_command.main(["lambda", *where, "--values", "0", "1"])
    assert linear_top1(tmp_path / "pirl_1" / "linear") == {"res5": 40.0}


@pytest.fixture
def voc07(tmp_path):
    (tmp_path / "VOC2007" / "ImageSets" / "Main").mkdir(parents=True)
    return tmp_path / "VOC2007"


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_permutations__commands_of_voc07_compose(scale, image_folder, voc07, tmp_path, capsys):
    arguments = ["--scale", scale, "--data", image_folder, "--out", tmp_path / "out"]
    arguments += ["--voc07", voc07, "--values", "1"]
    *_, svm = dry_run(capsys, "permutations", *arguments)
    assert Path(svm[1]).name == "train_svm.py"
    config = compose_plain(svm[2:])
    assert config.DATA.TRAIN.DATA_PATHS == config.DATA.TEST.DATA_PATHS == [str(voc07)]
    assert config.CHECKPOINT.DIR == f"{tmp_path}/out/pirl_1/voc07"
    checkpoint = f"{tmp_path}/out/pirl_1/pretrain/checkpoint.torch"
    assert config.MODEL.WEIGHTS_INIT.PARAMS_FILE == checkpoint
    layers = [
        layer for layer, _ in config.MODEL.FEATURE_EVAL_SETTINGS.LINEAR_EVAL_FEAT_POOL_OPS_MAP
    ]
    if scale == "paper":
        assert layers == ["conv1", "res2", "res3", "res4", "res5"]
    else:
        assert layers == ["res5"]
        assert config.MODEL.TRUNK.PIRL_RESNET == {"DEPTH": 10, "WIDTH_MULTIPLIER": 0.5}
        assert config.DATA.TEST.TRANSFORMS[0]["size"] == [64, 64]


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


def test_permutations__refuses_a_folder_that_is_not_voc07(image_folder, tmp_path, capsys):
    where = ["--data", str(image_folder), "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit):
        sweep_command.main(["permutations", *where, "--voc07", str(tmp_path)])
    assert f"--voc07 = {tmp_path}: expected VOCdevkit/VOC2007" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_linear_top1__is_that_of_the_last_epoch(tmp_path):
    with pytest.raises(ValueError, match="not finished"):
        linear_top1(tmp_path / "nowhere")
    finish(tmp_path, {"res4": 12.5, "res5": 37.5})
    assert linear_top1(tmp_path) == {"res4": 12.5, "res5": 37.5}
    finish(tmp_path, {"res5": 37.5}, tested=False)
    with pytest.raises(ValueError, match="no test accuracy of the last epoch"):
        linear_top1(tmp_path)


def test_final_checkpoint__is_whole(tmp_path):
    finish(tmp_path)
    final = tmp_path / "model_final_checkpoint_phase1.torch"
    assert final_checkpoint(tmp_path) == final
    final.write_bytes(final.read_bytes()[:-10])
    assert final_checkpoint(tmp_path) is None
    final.rename(tmp_path / "model_phase1.torch")
    assert final_checkpoint(tmp_path) is None


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

    monkeypatch.setattr(sweep_launch.time, "sleep", end_it)
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
