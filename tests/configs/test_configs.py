"""Every config composes through the host's own Hydra entry, and says what the paper says."""

import os
from pathlib import Path

import pytest

from pirl_plugin.utils.config_root import config_root
from pirl_plugin.utils.hydra_overrides import quoted
from tests.helpers.configs import compose

ROOT = config_root() / "config"
NAMES = sorted(p.relative_to(ROOT).with_suffix("").as_posix() for p in ROOT.rglob("*.yaml"))
COMPLETE = [name for name in NAMES if name.startswith(("pretrain/", "benchmark/"))]
BASES = [name for name in NAMES if name.startswith("pirl/base/")]  # what complete ones build on
OVERLAYS = [name for name in NAMES if name.startswith("pirl/") and name not in BASES]
COMPOSED_OVER = {
    "pirl/linear": "benchmark/pirl/linear_imagenet1k",
    "pirl/finetune": "benchmark/pirl/semi_supervised_imagenet1k_1percent",
    "pirl/semi_supervised": "benchmark/pirl/semi_supervised_imagenet1k_1percent",
}


@pytest.mark.parametrize("name", COMPLETE)
def test_config__composes_from_any_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert compose(f"config={name}").LOSS.name


@pytest.mark.parametrize("name", OVERLAYS)
def test_overlay__composes_over_the_papers_config(name):
    group, _, option = name.rpartition("/")
    over = COMPOSED_OVER.get(group, "pretrain/pirl/jigsaw_8node")
    assert compose(f"config={over}", f"+config/{group}={option}").LOSS.name


def test_names__are_none_of_vissls():
    import configs

    host = Path(configs.__path__[0], "config")
    theirs = {p.relative_to(host).as_posix() for p in host.rglob("*.yaml")}
    assert theirs
    assert not theirs & {f"{name}.yaml" for name in NAMES}


def test_names__are_all_tested():
    assert sorted(COMPLETE + OVERLAYS + BASES) == NAMES
    assert not list(config_root().rglob("__init__.py"))  # would shadow the host's own configs


def test_quick_jigsaw__is_one_process_on_a_cpu():
    config = compose("config=pretrain/pirl/quick_jigsaw")
    assert config.MACHINE.DEVICE == "cpu"
    assert config.DISTRIBUTED.NUM_NODES * config.DISTRIBUTED.NUM_PROC_PER_NODE == 1
    assert config.DATA.TRAIN.TRANSFORMS[0]["image_size"] == 64
    assert config.MODEL.TRUNK.NAME == "pirl_resnet"


def test_unknown_config__is_named_in_one_sentence():
    with pytest.raises(SystemExit) as stopped:
        compose("config=pretrain/pirl/jigsaw_9node")
    message = str(stopped.value)
    assert "pretrain/pirl/jigsaw_9node" in message
    assert "pretrain/pirl/jigsaw_8node" in message
    assert "/base/" not in message
    assert len(message.splitlines()) == 1
    assert os.linesep not in message


@pytest.mark.parametrize("name", ["plain/a-b_c.d", "josé", "a = b, (c) [d] #", "it's ~ {e}", "a b"])
def test_quoted__paths_of_any_name_compose(name):
    paths = [
        f"config.DATA.TRAIN.DATA_PATHS=[{quoted(name)}]",
        f"config.CHECKPOINT.DIR={quoted(name)}",
    ]
    config = compose("config=pretrain/pirl/quick_jigsaw", *paths)
    assert list(config.DATA.TRAIN.DATA_PATHS) == [config.CHECKPOINT.DIR] == [name]


@pytest.mark.parametrize(
    ("key", "value", "written"),
    [
        ("CHECKPOINT.DIR", "josé", "='josé'"),
        ("CHECKPOINT.DIR", "runs/a,b", "='runs/a,b'"),
        ("DATA.TRAIN.DATA_PATHS", "[a=b]", "=['a=b']"),
        ("DATA.TRAIN.DATA_PATHS", "[it's]", r"=['it\'s']"),
        ("DATA.TRAIN.DATA_PATHS", "[com,ma]", "=['com,ma']"),
    ],
)
def test_unquoted_value__is_written_out_in_quotes(key, value, written, tmp_path, monkeypatch):
    """The hint had quotes where they did not help, or none at all."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "com,ma").mkdir()
    with pytest.raises(SystemExit) as refused:
        compose("config=pretrain/pirl/quick_jigsaw", f"config.{key}={value}")
    assert f'"config.{key}{written}"' in str(refused.value)
    config = compose("config=pretrain/pirl/quick_jigsaw", f"config.{key}{written}")
    found = config.CHECKPOINT.DIR if key == "CHECKPOINT.DIR" else config.DATA.TRAIN.DATA_PATHS[0]
    assert found == value.strip("[]")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("config.CHECKPOINT.DIR=2025", "number in quotes, \"config.CHECKPOINT.DIR='…'\""),
        (  # was answered with the folder 20240115
            "config.DATA.TRAIN.DATA_PATHS=[2024_01_15]",
            "number in quotes, \"config.DATA.TRAIN.DATA_PATHS=['…']\"",
        ),
        ("config.DATA.TRAIN.DATA_PATHS=['few]", "PATHS=['few]: expected quotes in pairs; close"),
        ("config.DATA.TRAIN.TRANSFORMS=[{name: é}]", "needs quotes: \"KEY='…'\", and in a list"),
    ],
)
def test_value_whose_text_is_not_known__gets_no_wrong_hint(override, message):
    with pytest.raises(SystemExit) as refused:
        compose("config=pretrain/pirl/quick_jigsaw", override)
    assert message in str(refused.value)


def test_number_with_commas__is_written_out_without():
    with pytest.raises(SystemExit, match=r"write config\.\S+=32000 for a number"):
        compose("config=pretrain/pirl/quick_jigsaw", "config.LOSS.pirl_loss.num_negatives=32,000")


@pytest.mark.parametrize(
    "override", ["config.CHECKPOINT.DIR=~/run", "config.DATA.TRAIN.DATA_PATHS=[~/a]"]
)
def test_tilde__is_answered_with_home(override):
    with pytest.raises(
        SystemExit, match=r"(DIR|PATHS) = '~/.*nothing expands ~ here; write \$HOME"
    ):
        compose("config=pretrain/pirl/quick_jigsaw", override)


@pytest.mark.parametrize("name", COMPLETE)
def test_checkpoints__go_to_a_folder_named_for_the_config(name):
    assert compose(f"config={name}").CHECKPOINT.DIR == f"runs/{name.rpartition('/')[2]}"


OLD = "config.DATA.TRAIN.TRANSFORMS.0"


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        (f"{OLD}.num_permutations=10", "num_permutations", 10),
        (f"++{OLD}.num_permutations=10", "num_permutations", 10),
        (f"+{OLD}.brightness=0.1", "brightness", 0.1),
        ("config.DATA.TRAIN.VIEWS.num_permutations=10", "num_permutations", 10),
        ("config.DATA.TRAIN.TRANSFORMS=[{name: PredictJigsaw, num_permutations: 10}]", "name", ...),
    ],
)
def test_views__may_be_named_as_the_first_transform(override, key, value):
    config = compose("config=pretrain/pirl/jigsaw_baseline_8node", override)
    (transform,) = config.DATA.TRAIN.TRANSFORMS
    assert value is ... or transform[key] == value
    if transform["num_permutations"] == 10:
        assert config.MODEL.HEAD.PARAMS[-1][1]["dims"] == [9000, 10]


def test_heads__may_be_named_as_entries_of_their_list():
    config = compose(
        "config=pretrain/pirl/rotation_8node",
        "config.MODEL.HEAD.PARAMS.0.1.hidden_dim=64",
        "config.MODEL.HEAD.PARAMS.1.1.hidden_dim=32",
    )
    assert [head[1]["hidden_dim"] for head in config.MODEL.HEAD.PARAMS] == [64, 32]


def test_first_transform__of_another_kind_is_what_it_says():
    override = "config.DATA.TRAIN.TRANSFORMS.0.size=96"
    config = compose("config=benchmark/pirl/linear_imagenet1k", override)
    assert config.DATA.TRAIN.TRANSFORMS[0]["size"] == 96


@pytest.mark.parametrize(
    ("name", "overlay"),
    [
        ("pretrain/pirl/rotation_baseline_8node", "bank=sharded"),
        ("benchmark/pirl/linear_imagenet1k", "bank=sharded"),
        ("benchmark/pirl/linear_imagenet1k", "finetune=resnet18"),
        ("pretrain/pirl/jigsaw_8node", "finetune=resnet18"),
        ("pretrain/pirl/jigsaw_8node", "linear=resnet18"),
        ("benchmark/pirl/semi_supervised_imagenet1k_1percent", "linear=resnet18"),
        ("benchmark/pirl/linear_imagenet1k", "models=resnet18"),
        ("benchmark/pirl/linear_imagenet1k", "transforms=gaussian_blur"),
        ("benchmark/pirl/linear_imagenet1k", "semi_supervised=vissl"),
    ],
)
def test_overlays__of_another_kind_of_config_are_refused(name, overlay):
    with pytest.raises(SystemExit, match=rf"{overlay}: expected a .*; ") as stopped:
        compose(f"config={name}", f"+config/pirl/{overlay}")
    assert len(str(stopped.value).splitlines()) == 1
