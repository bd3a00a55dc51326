"""Mistakes in names, of configs, overlays and keys: the nearest ones are named."""

import pytest

from pirl_plugin.vissl.checks.configuration import check_configuration
from pirl_plugin.vissl.checks.refusal import ConfigurationError
from tests.helpers.configs import compose

QUICK = "config=pretrain/pirl/quick_jigsaw"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["config=pretrain/pirl/jigsaw_8nodes"], "nearest are pretrain/pirl/jigsaw_8node, .* and "),
        (["config=pretrain/simclr/simclr_8node_resent"], "simclr_8node_resnet"),
        ([QUICK, "+config/pirl/models=resnet51"], "pirl/models/resnet50"),
        ([QUICK, "+config/pirl/model=resnet18"], "pirl/models/resnet18"),
        ([QUICK, "config/pirl/models=resnet18"], r"is an overlay; write \+config/pirl/models=NAME"),
        ([QUICK, "config.OPTIMIZER.num_epoch=3"], r"num_epoch = 3: .*config.OPTIMIZER.num_epochs"),
        ([QUICK, "config.LOSS.pirl_loss.temprature=1"], "config.LOSS.pirl_loss.temperature"),
        ([QUICK, "conifg.LOG_FREQUENCY=1"], "config.LOG_FREQUENCY"),
        ([QUICK, "jigsaw_8node"], "jigsaw_8node: expected KEY=VALUE"),
        (
            [QUICK, "config.DATA.TRAIN.DATA_PATHS=[a/train,", "a/b,", "a/val]", "config.LOG=1"],
            r"PATHS=\[a/train, a/b, a/val\]: expected no spaces within brackets; write "
            r"config.DATA.TRAIN.DATA_PATHS=\[a/train,a/b,a/val\]$",
        ),
        (
            [QUICK, "config.DATA.TRAIN.DATA_PATHS=[/a,~/b/train]"],
            r"DATA_PATHS = '~/b/train': expected a path written out",
        ),
        (["pretrain/pirl/quick_jigsaw"], "write config=pretrain/pirl/quick_jigsaw"),
        (
            [QUICK, "config.DATA.TRAIN.VIEWS.patch_size=40"],
            r"^pirl_plugin: config.DATA.TRAIN.VIEWS.patch_size = 40: expected at most 32, the side",
        ),
        (["config.LOG_FREQUENCY=1"], r"expected config=NAME, such as"),
        ([], r"expected config=NAME, such as"),
        ([QUICK, "config.DATA.TRAIN=5"], "config.DATA.TRAIN"),
        ([QUICK, "config.LOSS.pirl_loss.num_negatives=[1"], r"cannot compose config\.LOSS\.pirl"),
        (
            [QUICK, "config.LOSS.pirl_loss.num_negatives=32,000"],
            r"num_negatives = 32,000: .*write config.LOSS.pirl_loss.num_negatives=32000 for a num",
        ),
        ([QUICK, "~config.OPTIMIZER.num_epoch"], "num_epoch"),
        ([QUICK, "~config.OPTIMIZER.num_epochs"], "write config.OPTIMIZER.num_epochs=VALUE"),
        ([QUICK, "~config.LOSS.pirl_loss"], "~config.LOSS.pirl_loss: expected a key that keeps"),
        (
            [QUICK, "+LOSS.pirl_loss.temperature=0.3"],
            r"expected a key that is read, below config\.; .*config.LOSS.pirl_loss.temperature",
        ),
        (
            [QUICK, "+config/pirl/machines=cpu", "+config/pirl/machines=1gpu"],
            r"machines=cpu \+config/pirl/machines=1gpu: expected one overlay of a group",
        ),
        ([QUICK, "config.LOSS.pirl_loss.num_train_samples=5"], "expected -1, .*DATA_LIMIT=5"),
    ],
)
def test_mistake__is_one_sentence(overrides, message):
    with pytest.raises(SystemExit, match=message) as stopped:
        compose(*overrides)
    assert len(str(stopped.value).splitlines()) == 1
    assert len(str(stopped.value)) < 600


@pytest.mark.parametrize(
    ("config", "override", "message"),
    [
        ("pretrain/pirl/jigsaw_8node", "start_value=0.1", "auto_lr_scaling.base_value=RATE"),
        ("benchmark/pirl/linear_imagenet1k", "values=[1,0.1]", "auto_lr_scaling.base_value=RATE"),
        ("pretrain/pirl/quick_jigsaw", "auto_lr_scaling.base_value=0.1", "start_value=RATE"),
    ],
)
def test_rate__that_the_host_would_not_read_is_refused(config, override, message):
    rate = "config.OPTIMIZER.param_schedulers.lr."
    with pytest.raises(SystemExit, match=message) as stopped:
        compose(f"config={config}", f"{rate}{override}")
    assert len(str(stopped.value).splitlines()) == 1
    scaled = "quick" in config
    both = compose(
        f"config={config}", f"{rate}{override}", f"{rate}auto_lr_scaling.auto_scale={scaled}"
    )
    assert both.OPTIMIZER.param_schedulers.lr.auto_lr_scaling.auto_scale == scaled


@pytest.mark.parametrize("key", ["LOSS.pirl_loss.temperature", "config.OPTIMISER.num_epochs"])
def test_mistyped_key__is_not_to_be_added(key):
    """The next command would refuse it, or worse, take it for a key that nobody reads."""
    with pytest.raises(SystemExit, match=rf"^pirl_plugin: {key} = 1: .*the nearest are") as stopped:
        compose(QUICK, f"{key}=1")
    assert "to add one" not in str(stopped.value)


def test_nearest__are_three_at_most():
    with pytest.raises(SystemExit) as stopped:
        compose("config=pretrain/pirl/jigsaw_9node")
    assert str(stopped.value).count("pretrain/pirl/") <= 1 + 1 + 3  # asked, quoted, nearest


@pytest.mark.parametrize("split", ["TRAIN", "TEST"])
def test_paths__may_lack_their_brackets(split):
    config = compose("config=benchmark/pirl/linear_imagenet1k", f"config.DATA.{split}.DATA_PATHS=a")
    assert config.DATA[split].DATA_PATHS == ["a"]


def test_configs_of_the_host__are_left_alone():
    config = compose(
        "config=test/integration_test/quick_simclr",
        "config.OPTIMIZER.num_epochs=0",
        "config.LOG_FREQUENCY=ten",
    )
    assert config.LOG_FREQUENCY == "ten"


@pytest.mark.parametrize("variable", ["PIRL_PLUGIN_TRACEBACK", "HYDRA_FULL_ERROR"])
def test_traceback__is_shown_on_request(variable, monkeypatch):
    monkeypatch.setenv(variable, "1")
    with pytest.raises(ConfigurationError, match="num_epochs = 0"):
        compose(QUICK, "config.OPTIMIZER.num_epochs=0")
    monkeypatch.setenv(variable, "0")
    with pytest.raises(SystemExit):
        compose(QUICK, "config.OPTIMIZER.num_epochs=0")


def test_check_configuration__says_whether_it_is_ours():
    from vissl.utils.hydra_config import compose_hydra_configuration

    assert check_configuration(compose_hydra_configuration([QUICK]))
    simclr = ["config=test/integration_test/quick_simclr"]
    assert not check_configuration(compose_hydra_configuration(simclr))
