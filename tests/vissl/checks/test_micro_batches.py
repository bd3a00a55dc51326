"""Micro-batches that a run cannot have, and what the overlays make of those that it can."""

import pytest

from pirl_plugin.vissl.checks.micro_batches import check_micro_batches
from tests.helpers.configs import compose

PAPER = "config=pretrain/pirl/jigsaw_8node"
KEY = "config.TRAINER.PIRL_MICRO_BATCHES"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            [f"{KEY}=5", "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=32"],
            r"PIRL_MICRO_BATCHES = 5: expected a number that divides "
            r"config.DATA.TRAIN.BATCHSIZE_PER_REPLICA = 32.*set .*PIRL_MICRO_BATCHES=4$",
        ),
        (
            [f"{KEY}=2", "config.TRAINER.TRAIN_STEP_NAME=standard_train_step"],
            r"= 2 with config.TRAINER.TRAIN_STEP_NAME = 'standard_train_step': expected .*"
            r"TRAIN_STEP_NAME=pirl_micro_batches",
        ),
        (
            [f"{KEY}=2", "config.LOSS.name=simclr_info_nce_loss"],
            r"config.LOSS.name = 'simclr_info_nce_loss': expected pirl_loss or cross_entropy",
        ),
        (
            [f"{KEY}=2", "config.MODEL.AMP_PARAMS.USE_AMP=true"],
            r"AMP_TYPE = 'apex': expected pytorch; set config.MODEL.AMP_PARAMS.AMP_TYPE=pytorch",
        ),
    ],
)
def test_check_micro_batches__refuses_in_one_sentence(overrides, message):
    with pytest.raises(SystemExit, match=message) as refusal:
        check_micro_batches(compose(PAPER, *overrides))
    assert "\n" not in str(refusal.value)


def test_check_micro_batches__refuses_weights_of_classes():
    config = compose("config=pretrain/pirl/jigsaw_baseline_8node", f"{KEY}=2")
    check_micro_batches(config)
    config.LOSS[config.LOSS.name]["weight"] = [1.0, 2.0]
    with pytest.raises(SystemExit, match="with weights of classes: expected pirl_loss or cross_"):
        check_micro_batches(config)


@pytest.mark.parametrize("value", ["0", "two", "1.5", "true"])
def test_value__is_a_whole_number(value):
    with pytest.raises(SystemExit, match=r"config.TRAINER.PIRL_MICRO_BATCHES = .*set .*=1$"):
        compose(PAPER, f"{KEY}={value}")


@pytest.mark.parametrize(
    ("machine", "count", "batch", "rate"),
    [
        ("1gpu", 8, 1024, 0.12),
        ("1node_8gpu", 4, 128, 0.12),
        ("1node_8gpu", 1, 32, 0.03),
        ("cpu", 4, 128, 0.015),
    ],
)
def test_overlays__multiply_their_batch_and_the_rate_follows(machine, count, batch, rate):
    config = compose(PAPER, f"+config/pirl/machines={machine}", f"{KEY}={count}")
    assert config.DATA.TRAIN.BATCHSIZE_PER_REPLICA == batch
    assert config.OPTIMIZER.param_schedulers.lr.start_value == pytest.approx(rate)
    check_micro_batches(config)


def test_default__is_the_hosts_train_step():
    for config in (PAPER, "config=benchmark/pirl/linear_imagenet1k"):
        assert compose(config).TRAINER.TRAIN_STEP_NAME == "standard_train_step"


def test_overlays__of_machines_suit_the_hosts_own_configs():
    config = compose("config=test/integration_test/quick_simclr", "+config/pirl/machines=1gpu")
    assert config.DATA.TRAIN.BATCHSIZE_PER_REPLICA == 128
