"""The commands of the sweeps of Sec. 4: what they compose to."""

import shlex
from pathlib import Path

import pytest
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin.quickstart.sweep import command as sweep_command
from tests.helpers.sweeps import VALUES


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


@pytest.mark.parametrize(
    ("name", "scale"), [("lambda", "quick"), *((name, "paper") for name in VALUES)]
)
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


def test_overrides__of_what_pirl_alone_has_are_not_the_jigsaw_classifiers(
    image_folder, tmp_path, capsys
):
    given = [
        "config.HOOKS.PIRL_MONITOR.enabled=false",
        "+config/pirl/bank=sharded",
        "config.DATA.TRAIN.VIEWS.image_size=192",
        "config.DATA.TRAIN.TRANSFORMS.0.image_scale=[0.3,1.0]",
        "config.MODEL.HEAD.HIDDEN_DIM=512",
    ]
    where = ["--data", image_folder, "--out", tmp_path, "--values", "10", "--", *given]
    pirl, _, jigsaw, _ = dry_run(capsys, "permutations", *where)
    assert set(given) <= set(pirl)
    assert not set(given) & set(jigsaw)
    compose(jigsaw)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["config.OPTIMIZER.num_epoch=2"],
            r"\|T\| = 10: pre-training: config.OPTIMIZER.num_epoch = 2: expected an existing key",
        ),
        (
            ["--linear", "config.OPTIMIZER.num_epoch=2"],
            r"= 10: linear: config.OPTIMIZER.num_epoch ",
        ),
        (
            ["config.MODEL.HEAD.PARAMS.1.1.out_dim=64"],
            r"Jigsaw, .* config.MODEL.HEAD.PARAMS.1.1.out_dim = 64: expected an existing key",
        ),
    ],
)
def test_overrides__that_a_later_run_would_refuse_are_refused_at_once(
    given, message, image_folder, tmp_path
):
    where = ["--data", str(image_folder), "--out", str(tmp_path / "out"), "--values", "10"]
    with pytest.raises(SystemExit, match=message) as stopped:
        sweep_command.main(["permutations", *where, *given])
    assert len(str(stopped.value).splitlines()) == 1
    assert not (tmp_path / "out").exists()


RESNET18 = ["--linear", "+config/pirl/linear=resnet18"]


@pytest.mark.parametrize(
    ("scale", "given", "message"),
    [
        (
            "quick",
            [],
            "PIRL, λ = 0.5: linear: a ResNet-10 of width 0.5: expected a ResNet-18, which is "
            "pre-trained; add --linear +config/pirl/linear=resnet18",
        ),
        ("paper", [], "linear: a ResNet-50: expected a ResNet-18, "),
        (
            "quick",
            [*RESNET18, "--voc07"],
            "λ = 0.5: VOC07: a ResNet-10 of width 0.5: .*leave ",
        ),
        ("quick", RESNET18, None),
        ("paper", RESNET18, None),
    ],
)
def test_trunk__of_a_benchmark_is_the_one_that_is_pretrained(
    scale, given, message, image_folder, voc07, tmp_path, capsys
):
    """The pre-training ran for hours, and then no benchmark took its checkpoint."""
    given = [word for w in given for word in ([w, voc07] if w == "--voc07" else [w])]
    arguments = ["--scale", scale, "--data", image_folder, "--out", tmp_path / "out"]
    arguments += ["--values", "0.5", "+config/pirl/models=resnet18", *given]
    if message is None:
        assert len(dry_run(capsys, "lambda", *arguments)) == 2
        return
    with pytest.raises(SystemExit, match=message.replace("+", r"\+")) as stopped:
        dry_run(capsys, "lambda", *arguments)
    assert len(str(stopped.value).splitlines()) == 1


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


@pytest.mark.parametrize("section", ["TRANSFORMS.0", "VIEWS"])
def test_overrides__of_the_swept_key_are_refused_by_both_its_names(section, image_folder, tmp_path):
    given = f"config.DATA.TRAIN.{section}.num_permutations=5"
    where = ["--data", str(image_folder), "--out", str(tmp_path), "--", given]
    with pytest.raises(SystemExit, match=r"cannot be given: the sweep sets"):
        sweep_command.main(["permutations", "--dry-run", *where])


def test_voc07__is_refused_with_slurm(image_folder, voc07, tmp_path, capsys):
    """VISSL's SVM tool takes no job: it ran here, and was called a failed submission."""
    where = ["--data", str(image_folder), "--out", str(tmp_path), "--voc07", str(voc07)]
    with pytest.raises(SystemExit):
        sweep_command.main(["permutations", *where, "--slurm", "gpu"])
    assert "--slurm with --voc07: expected one of them" in capsys.readouterr().err
