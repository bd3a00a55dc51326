"""Mistakes in the values of keys, as many as come to mind: each is one sentence, in time."""

import copy
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin.vissl.checks.before_launch import CHECKS, check_machine

_INTEGERS = ("0", "-1", "1.5", "ten", "null", "[1,2]", "true", "1e30")
_FLAGS = ("maybe", "2", "null", "[]")
_RATIOS = ("-1", ".nan", ".inf", "x", "null", "[0.5]")
LOSS, INPUT, TRAIN = "LOSS.pirl_loss", "HOOKS.PIRL_INPUT", "DATA.TRAIN"
VIEWS = f"{TRAIN}.TRANSFORMS.0"
# Key below config -> values that no run can be made of.
WRONG: dict[str, tuple[str, ...]] = {
    "OPTIMIZER.num_epochs": _INTEGERS,
    "OPTIMIZER.momentum": _RATIOS,
    "OPTIMIZER.weight_decay": _RATIOS,
    "OPTIMIZER.nesterov": _FLAGS,
    "OPTIMIZER.name": ("adamm", "3", "null"),
    "OPTIMIZER.param_schedulers.lr.name": ("cosin", "5", "null"),
    "OPTIMIZER.param_schedulers.lr.start_value": ("-0.1", "0", ".nan", "high"),
    "OPTIMIZER.param_schedulers.lr.end_value": ("-1", ".inf", "x"),
    "OPTIMIZER.param_schedulers.lr.update_interval": ("epochs", "1"),
    "OPTIMIZER.param_schedulers.lr.auto_lr_scaling.auto_scale": ("maybe", "2"),
    f"{TRAIN}.BATCHSIZE_PER_REPLICA": (*_INTEGERS, "1000000000"),
    f"{TRAIN}.DATA_LIMIT": ("0", "1", "-2", "1.5", "x"),
    f"{TRAIN}.DATA_PATHS": ("3", "[1]", "[a,b]", "{a: b}"),
    f"{TRAIN}.DATA_SOURCES": ("[pirl_disk_foldr]", "[]", "7"),
    f"{TRAIN}.COLLATE_FUNCTION": ("pirl_colator", "moco_collator", "1"),
    f"{TRAIN}.INPUT_KEY_NAMES": ("[]", "[patchs,images]", "[patches]", "3"),
    f"{TRAIN}.TRANSFORMS": ("[]", "x", "[PIRLJigsaw]", "[{name: PIRLJigsawe}]", "[{}]"),
    f"{VIEWS}.patch_size": ("90", "0", "x", "1.5", "null"),
    f"{VIEWS}.image_size": ("0", "-64", "x", "1000000000", "[64,64]"),
    f"{VIEWS}.patches_crop_size": ("0", "10", "x"),
    f"{VIEWS}.image_scale": ("[0,1]", "[1,0.5]", "0.5", "[0.1,2]", "x"),
    f"{VIEWS}.num_permutations": ("0", "-1", "400000", "x", "1.5"),
    f"{VIEWS}.flip": ("maybe", "true", "null"),
    f"{VIEWS}.backend": ("cuda", "null"),
    f"{VIEWS}.photometric": ("x", "[1]", "{blurr_p: 1}", "{hue: 2}"),
    f"{VIEWS}.grid": ("2", "0", "x"),
    f"{VIEWS}.name": ("PIRLRotation", "Jigsaw", "3"),
    "DATA.NUM_DATALOADER_WORKERS": ("-1", "1.5", "many", "null", "100000"),
    "DATA.PIN_MEMORY": _FLAGS,
    "DISTRIBUTED.NUM_PROC_PER_NODE": ("0", "-1", "1.5", "x", "null"),
    "DISTRIBUTED.NUM_NODES": ("0", "x", "null"),
    "DISTRIBUTED.BACKEND": ("nccl", "glo", "1"),
    "DISTRIBUTED.RUN_ID": ("here", "localhost:99999", "3"),
    "DISTRIBUTED.INIT_METHOD": ("udp", "null"),
    "MACHINE.DEVICE": ("x", "tpu", "gpu", "null", "0"),
    "CHECKPOINT.DIR": ("null", "''", "/dev/null/x", "3"),
    "CHECKPOINT.CHECKPOINT_FREQUENCY": ("0", "-1", "x", "1.5"),
    "CHECKPOINT.AUTO_RESUME": _FLAGS,
    "LOG_FREQUENCY": ("0", "-5", "x", "null"),
    "SEED_VALUE": ("-1", "1.5", "x", "null", "10000000000"),
    "MULTI_PROCESSING_METHOD": ("forks", "null"),
    "TEST_ONLY": _FLAGS,
    "TEST_MODEL": ("maybe", "2"),
    "TRAINER.TRAIN_STEP_NAME": ("standard_trainstep", "1"),
    f"{INPUT}.mean": (".nan", "[0,0]", "[x,y,z]", "[.nan,0,0]", "0.5"),
    f"{INPUT}.std": ("[0,1,1]", "[-1,1,1]", "[.inf,1,1]", "1", "null"),
    f"{INPUT}.autocast": ("float16", "true", "1"),
    f"{INPUT}.channels_last": _FLAGS,
    f"{INPUT}.chanels_last": ("true",),
    "LOSS.name": ("pirl_los", "3"),
    f"{LOSS}.temperature": ("-1", "0", ".nan", "x", "null"),
    f"{LOSS}.estimator": ("infonce", "3", "null"),
    f"{LOSS}.lambda_invariance": ("-0.1", "1.1", ".nan", "x"),
    f"{LOSS}.num_negatives": ("0", "x", "null"),
    f"{LOSS}.temprature": ("0.07",),
    f"{LOSS}.negatives": ("per_img", "1"),
    f"{LOSS}.norm_constant": ("0", "-1", "x"),
    f"{LOSS}.embedding_dim": ("64",),
    f"{LOSS}.scores": ("fused", "1"),
    f"{LOSS}.bank.momentm": ("0.5",),
    f"{LOSS}.bank.placement": ("shard", "null"),
    f"{LOSS}.bank": ("3",),
    LOSS: ("3", "null"),
    "MODEL.HEAD.IN_DIM": ("0", "x", "1.5"),
    "MODEL.HEAD.HIDDEN_DIM": ("0", "x", "1.5"),
    "MODEL.HEAD.PARAMS": ("[]", "x", "[[pirl_heed, {in_dim: 256}]]", "[pirl_head]"),
    "MODEL.TRUNK.NAME": ("pirl_resnt", "alexnet2", "3"),
    "MODEL.TRUNK.PIRL_RESNET.DEPTH": ("17", "x", "0"),
    "MODEL.TRUNK.PIRL_RESNET.WIDTH_MULTIPLIER": ("0", "-1", "x", "2"),
    "MODEL.TRUNK.PIRL_RESNET.SMALL_STEM": _FLAGS,
    "MODEL.TRUNK.PIRL_RESNET.depth": ("18",),
    "MODEL.WEIGHTS_INIT.PARAMS_FILE": ("nowhere.torch", "3"),
    "MODEL.MULTI_INPUT_HEAD_MAPPING": ("[]", "[[images,[flatten]]]", "x"),
    "OPTIMIZER": ("3",),
    "OPTIMIZER.num_epoch": ("3",),
    "HOOKS.PIRL_INPTU": ("{autocast: bfloat16}",),
    "CHECKPOINT.CHECKPOINT_FREQENCY": ("3",),
}
CASES = [(key, value) for key, values in WRONG.items() for value in values]


@pytest.fixture(scope="module")
def composed(image_folder: Any) -> Any:
    data = f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]"
    return compose_hydra_configuration(["config=pretrain/pirl/quick_jigsaw", data])


def launch(composed: Any) -> None:
    """All that is checked before a worker starts."""
    _, config = convert_to_attrdict(composed, dump_config=False)
    for check in (check_machine, *CHECKS):
        check(config)


def test_cases__are_many():
    assert len(CASES) >= 150


def test_config__is_right_without_them(composed):
    launch(copy.deepcopy(composed))


@pytest.mark.parametrize(("key", "value"), CASES)
def test_mistake__is_one_sentence(key, value, composed, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    changed = copy.deepcopy(composed)
    parsed = OverridesParser.create().parse_override(f"+config.{key}={value}").value()
    OmegaConf.set_struct(changed, False)
    OmegaConf.update(changed, f"config.{key}", parsed, merge=False, force_add=True)
    with pytest.raises(SystemExit) as stopped:
        launch(changed)
    message = str(stopped.value)
    assert message.startswith("pirl_plugin: ")
    assert len(message.splitlines()) == 1
    assert "expected" in message
    assert key.split(".")[-1] in message or "config.MODEL" in message
