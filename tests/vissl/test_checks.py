"""Mistakes in the values of keys, as many as come to mind: each is one sentence, in time."""

import pickle
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from PIL import Image
from vissl.utils import hydra_config

from pirl_plugin.vissl.checks import check_composed, check_run

_INTEGERS = ("0", "1.5", "ten", "null")
_FLAGS = ("maybe", "null")
_RATIOS = ("-1", ".nan", "x")
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
    f"{TRAIN}.BATCHSIZE_PER_REPLICA": _INTEGERS,
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
    f"{INPUT}.channels_last": ("maybe", "null", "[]"),
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
    f"{LOSS}.bank.momentm": ("0.5",),
    f"{LOSS}.bank.placement": ("shard", "null"),
    f"{LOSS}.bank": ("3",),
    LOSS: ("3", "null"),
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
# What the host or a rank refuses when it reads them, after the check, with its own words.
LATER = {
    "DATA.TRAIN.DATA_LIMIT", "DATA.NUM_DATALOADER_WORKERS", "DISTRIBUTED.RUN_ID", "SEED_VALUE",
    "DISTRIBUTED.INIT_METHOD", "CHECKPOINT.DIR", "MULTI_PROCESSING_METHOD",
    "TRAINER.TRAIN_STEP_NAME", "OPTIMIZER.param_schedulers.lr.start_value",
}  # fmt: skip
compose = hydra_config.compose_hydra_configuration


@pytest.fixture(scope="module")
def tree(image_folder: Any) -> bytes:
    """The composed configuration as plain dictionaries, pickled: a copy is cheap."""
    data = f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]"
    composed = compose(["config=pretrain/pirl/quick_jigsaw", data])
    return pickle.dumps(OmegaConf.to_container(composed))


def check(composed: Any) -> None:
    """All that is checked before a worker starts."""
    check_composed(composed, [])
    _, config = hydra_config.convert_to_attrdict(composed, dump_config=False)
    check_run(config)


def changed(tree: bytes, key: str, value: str) -> Any:
    whole = section = pickle.loads(tree)
    *names, last = ["config", *key.split(".")]
    for name in names:
        section = section[int(name)] if isinstance(section, list) else section[name]
    section[last] = OverridesParser.create().parse_override(f"+x={value}").value()
    return OmegaConf.create(whole)


def test_mistakes__are_one_sentence_each(tree, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    check(OmegaConf.create(pickle.loads(tree)))  # right without them
    passed = []
    for key, value in CASES:
        try:
            check(changed(tree, key, value))
            passed += [(key, value)] if key not in LATER else []
        except (Exception, SystemExit) as error:
            if not isinstance(error, (ValueError, OSError, SystemExit)):
                passed.append((key, value, repr(error)))
    assert passed == [], "\n".join(map(str, passed))


def composed(*overrides: str) -> Any:
    return hydra_config.convert_to_attrdict(compose(list(overrides)), dump_config=False)[1]


QUICK = "config=pretrain/pirl/quick_jigsaw"
RATE = "config.OPTIMIZER.param_schedulers.lr."
JIGSAW = "config=pretrain/pirl/jigsaw_8node"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["config=pretrain/pirl/jigsaw_9node"], "Could not find 'config/pretrain/pirl/jigsaw_9no"),
        ([QUICK, "config.OPTIMIZER.num_epoch=3"], "Could not override 'config.OPTIMIZER.num_epoch"),
        ([QUICK, "+config/pirl/models=resnet51"], "resnet51"),
        ([QUICK, f"{RATE}auto_lr_scaling.base_value=1"], "set .*lr.start_value, or auto_scale="),
        ([JIGSAW, f"{RATE}start_value=1"], "set .*auto_lr_scaling.base_value, or auto_scale="),
        (
            [QUICK, "config.HOOKS.PIRL_RUN.timeout_minutes=x"],
            "timeout_minutes: expected",
        ),
        ([QUICK, "config.HOOKS.PIRL_RUN.max_unreadable=null"], "PIRL_RUN.max_unreadable: expected"),
        ([QUICK, "+config.HOOKS.PIRL_MONITOR.evry=2"], "MONITOR.evry: .*; the nearest is every"),
        ([QUICK, "config.CHECKPOINT.PIRL.KEEP_LAST=0"], "KEEP_LAST = 0: expected"),
    ],
)
def test_override__ends_in_one_sentence(overrides, message):
    with pytest.raises(SystemExit, match=message) as stopped:
        composed(*overrides)
    assert len(str(stopped.value).splitlines()) == 1


def test_section__that_the_loss_does_not_read_is_said_once(capsys):
    composed("config=benchmark/pirl/quick_linear", "+config/pirl/bank=sharded")
    assert capsys.readouterr().err.count("config.LOSS.pirl_loss is not read") == 1


def test_configs_of_the_host__are_left_alone():
    simclr = composed("config=test/integration_test/quick_simclr", "config.LOG_FREQUENCY=0")
    check_run(simclr)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["config.DATA.TRAIN.DATA_PATHS=[]"], "no catalog lists"),
        (["config.DATA.TRAIN.DATA_PATHS=[/nowhere]"], "/nowhere is not a folder"),
        (["config.TRAINER.PIRL_MICRO_BATCHES=5", "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=32"],
         "PIRL_MICRO_BATCHES = 5: expected a number that divides"),
        (["config.MACHINE.DEVICE=gpu"], "= 1 with config.MACHINE.DEVICE = gpu: .* found 0"),
        (["config.MODEL.WEIGHTS_INIT.PARAMS_FILE=gone"], "PARAMS_FILE = gone: expected a check"),
        (["config.MODEL.HEAD.IN_DIM=512"], "config.MODEL with patches .* fit"),
        (["config.DATA.TRAIN.TRANSFORMS.0.grid=2"], r"config.MODEL with patches \(8, 3, 24, 24\)"),
        (["config.DATA.TRAIN.VIEWS.image_size=32", "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA=19"],
         "no batch of one image of such small views"),
    ],
)  # fmt: skip
def test_run__is_refused_before_it_starts(overrides, message, image_folder, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    data = f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]"
    with pytest.raises((ValueError, OSError), match=message):
        check_run(composed(QUICK, data, *overrides))


def test_benchmark__is_refused_where_classes_do_not_fit(image_folder, tmp_path):
    train = f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]"
    linear = ["config=benchmark/pirl/quick_linear", train]
    (tmp_path / "val" / "ants").mkdir(parents=True)
    (tmp_path / "val" / "wasps").mkdir()
    for number in range(2):
        Image.new("RGB", (8, 8)).save(tmp_path / "val" / "ants" / f"{number}.png")
    with pytest.raises(ValueError, match=r"same subfolders.* 'bees' is in one alone"):
        check_run(composed(*linear, f"config.DATA.TEST.DATA_PATHS=[{tmp_path / 'val'}]"))
    linear.append(f"config.DATA.TEST.DATA_PATHS=[{image_folder / 'val'}]")
    check_run(composed(*linear, "config.MODEL.HEAD.NUM_CLASSES=2"))
    with pytest.raises(ValueError, match="NUM_CLASSES = 1: expected at least 2"):
        check_run(composed(*linear, "config.MODEL.HEAD.NUM_CLASSES=1"))


def test_svms__are_not_trained_by_the_engine():
    with pytest.raises(ValueError, match=r"write python -m tools.train_svm or"):
        check_run(composed("config=benchmark/pirl/svm_voc07"))
