"""Invalid values end in one sentence naming the key, before a run starts."""

import pytest

from pirl_plugin.vissl.sections import RECORD
from tests.helpers.configs import compose

QUICK = "config=pretrain/pirl/quick_jigsaw"
RATE = "config.OPTIMIZER.param_schedulers.lr."
JIGSAW = "config=pretrain/pirl/jigsaw_8node"


def test_mistaken_override__ends_in_one_sentence(subtests):
    for overrides, message in (
        (
            ["config=pretrain/pirl/jigsaw_9node"],
            "no config/pretrain/pirl/jigsaw_9node.yaml. pirl-plugin configs lists all",
        ),
        (["config=own_images"], r"no config/own_images.yaml. pirl-plugin configs lists all"),
        (["pretrain/pirl/own_images"], r"NAME or KEY=VALUE. pirl-plugin configs lists all"),
        ([QUICK, "+config/pirl/models=resnet19"], "Choose one of resnet10, resnet18, .*, timm"),
        ([QUICK, "+config/pirl/model=resnet18"], "no such group. pirl-plugin configs lists"),
        ([QUICK, "config.SLURM.NAME=jos\u00e9"], "SLURM.NAME=jos. .*override_grammar"),
        ([QUICK, "config.DATA.TRAIN.DATA_PATH=x"], r"nearest is config.DATA.TRAIN.DATA_PATHS\."),
        ([QUICK, "~config.OPTIMIZER.num_epoch"], r"nearest is config.OPTIMIZER.num_epochs\."),
        ([QUICK, f"{RATE}auto_lr_scaling.base_value=1"], "Set .*lr.start_value"),
        ([QUICK, f"{RATE}value=1"], "name = cosine .* Set .*lr.start_value"),
        ([JIGSAW, f"{RATE}start_value=1"], "Set .*auto_lr_scaling.base_value"),
        (
            [QUICK, "config.HOOKS.PIRL_RUN.max_unreadable=null"],
            "PIRL_RUN.max_unreadable: unknown key or",
        ),
        ([QUICK, "config.HOOKS.PIRL_RUN.max_unreadable=5"], "PIRL_RUN.max_unreadable = 5.0: exp"),
        ([QUICK, "config.CHECKPOINT.PIRL.KEEP_LAST=all"], "KEEP_LAST: unknown key or wrong type"),
        ([QUICK, "config.MACHINE.DEVICE=cuda"], "MACHINE.DEVICE = 'cuda': expected one of gpu,"),
        ([QUICK, "config.CHECKPOINT.CHECKPOINT_FREQUENCY=0"], "CHECKPOINT_FREQUENCY = 0: expected"),
        ([QUICK, "config.HOOKS.PIRL_MONITOR.every=0"], "config.HOOKS.PIRL_MONITOR.every = 0: exp"),
        ([QUICK, "config.SLURM.USE_SLURM=true"], "SLURM.USE_SLURM = True: expected srun on the P"),
        ([QUICK, "config.LOSS.pirl_loss=3"], "`config.LOSS.pirl_loss` is not a container"),
        ([QUICK, "config.HOOKS=null", "config.OPTIMIZER.num_epochs=0"], "num_epochs = 0: exp"),
        ([QUICK, "config.LOSS.pirl_loss.temperature=0"], "temperature = 0"),
        ([QUICK, "config.LOSS.pirl_loss.estimator=infonce"], "estimator = 'infonce'"),
        ([QUICK, "+config.LOSS.pirl_loss.bank.momentm=0.5"], "momentm"),
        (
            [QUICK, "+config.HOOKS.PIRL_MONITOR.evry=2"],
            "MONITOR.evry: unknown key .*Key 'evry' not in",
        ),
    ):
        with subtests.test(message=message):
            with pytest.raises(SystemExit, match=message) as stopped:
                compose(*overrides)
            assert len(str(stopped.value).splitlines()) == 1


def test_unknown_added_keys__are_reported(caplog):
    compose(
        "config=pretrain/pirl/jigsaw_8node",
        "+config/pirl/machines=cpu_small",
        "+config.OPTIMIZER.num_epoch=1",
        "+config.MINE.key=1",
        "+config.SLURM.ADDITIONAL_PARAMETERS.account=me",  # an open section of VISSL's
        "++config.HOOKS.PIRL_MONITOR.k=5",
        "+config.DATA.RGB=true",
        "++config.LOG_FREQUENCY=7",  # exists
    )
    first, second = (record.message for record in caplog.records if record.levelname == "WARNING")
    assert first == (
        "+config.OPTIMIZER.num_epoch=1: neither VISSL nor this plugin has this key. The nearest is "
        "config.OPTIMIZER.num_epochs."
    )
    assert second.startswith("+config.MINE.key=1: neither VISSL nor this plugin has this key.")


def test_host_configs__are_not_validated():
    config = compose("config=test/integration_test/quick_simclr", "config.LOG_FREQUENCY=0")
    assert RECORD not in config
    assert config.TRAINER.TASK_NAME == "self_supervision_task"
