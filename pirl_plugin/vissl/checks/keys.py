"""The one table of keys: what each may be, and a value that works.

Keys of the host that our configs set or that its commands take, and our own where no class of ours
checks them. ``LOSS.pirl_loss``, the transforms, the heads and the trunks are checked by building
them (:mod:`pirl_plugin.vissl.checks.parts`).
"""

from __future__ import annotations

from typing import Any

from pirl_plugin.utils.hydra_overrides import in_quotes
from pirl_plugin.utils.kinds import (
    Kind,
    choice,
    flag,
    integer,
    list_of,
    mapping,
    number,
    optional,
    text,
)
from pirl_plugin.utils.our_configs import MICRO_BATCHES
from pirl_plugin.vissl.checks.names import nearest
from pirl_plugin.vissl.checks.refusal import refuse, shown

_TEXTS = list_of(text(), "a list of names in brackets")
_PATHS = list_of(text(empty=True), "a list of paths in brackets")
_CHANNELS = "three finite numbers in brackets, one for each channel"
_MEAN = list_of(number(-1e3), _CHANNELS, shortest=3, longest=3)
_STD = list_of(number(above=True), f"{_CHANNELS}, above 0", shortest=3, longest=3)
_SPLIT: dict[str, tuple[Kind, str]] = {
    "BATCHSIZE_PER_REPLICA": (integer(1, 65536), "32"),
    "COLLATE_FUNCTION": (text("the name of a collator"), "pirl_collator"),
    "COPY_TO_LOCAL_DISK": (flag(), "false"),
    "DATASET_NAMES": (_TEXTS, "[pirl_folder]"),
    "DATA_LIMIT": (integer(2, other=-1), "-1"),
    "DATA_LIMIT_SAMPLING.IS_BALANCED": (flag(), "false"),
    "DATA_LIMIT_SAMPLING.SEED": (integer(0), "0"),
    "DATA_LIMIT_SAMPLING.SKIP_NUM_SAMPLES": (integer(0), "0"),
    "DATA_PATHS": (_PATHS, "[DIR]"),
    "DATA_SOURCES": (_TEXTS, "[pirl_disk_folder]"),
    "DROP_LAST": (flag(), "false"),
    "INPUT_KEY_NAMES": (list_of(text(), "a list of names in brackets", shortest=1), "[images]"),
    "LABEL_PATHS": (_PATHS, "[]"),
    "LABEL_SOURCES": (_TEXTS, "[]"),
    "LABEL_TYPE": (choice("standard", "sample_index", "zero"), "standard"),
    "MMAP_MODE": (flag(), "true"),
    "TRANSFORMS": (
        Kind(
            "a list of transforms, each {name: NAME, …}",
            lambda value: (
                isinstance(value, list)
                and all(isinstance(entry, dict) and "name" in entry for entry in value)
            ),
        ),
        "[{name: PIRLJigsaw}]",
    ),
}
_SCHEDULE: dict[str, tuple[Kind, str]] = {
    "auto_lr_scaling.auto_scale": (flag(), "true"),
    "auto_lr_scaling.base_lr_batch_size": (integer(1), "256"),
    "auto_lr_scaling.base_value": (number(above=True, high=1e4), "0.03"),
    "auto_lr_scaling.scaling_type": (choice("linear", "sqrt"), "linear"),
    "end_value": (number(high=1e4), "0.00012"),
    "name": (text("the name of a schedule"), "cosine"),
    "start_value": (number(above=True, high=1e4), "0.12"),
    "update_interval": (choice("epoch", "step"), "epoch"),
    "values": (list_of(number(high=1e4), "a list of learning rates in brackets"), "[0.1, 0.01]"),
}

# Key below config -> (kind, a value that works).
TABLE: dict[str, tuple[Kind, str]] = {
    "CHECKPOINT.AUTO_RESUME": (flag(), "true"),
    "CHECKPOINT.CHECKPOINT_FREQUENCY": (integer(1), "1"),
    "CHECKPOINT.CHECKPOINT_ITER_FREQUENCY": (integer(1, other=-1), "-1"),
    "CHECKPOINT.DIR": (text("a folder to write to"), "runs/NAME"),
    "CHECKPOINT.OVERWRITE_EXISTING": (flag(), "false"),
    "DATA.MEAN": (_MEAN, "[0.485, 0.456, 0.406]"),
    "DATA.STD": (_STD, "[0.229, 0.224, 0.225]"),
    "DATA.TRAIN.CROP_SCALE": (
        list_of(
            number(above=True, high=1),
            "[smallest, largest], two shares of the image's area",
            shortest=2,
            longest=2,
        ),
        "[0.08, 1.0]",
    ),
    "DATA.TRAIN.CROP_SIZE": (integer(1, 8192), "224"),
    "DATA.TEST.CROP_SIZE": (integer(1, 8192), "224"),
    "DATA.TEST.RESIZE": (integer(1, 8192), "256"),
    "DATA.TRAIN.VIEWS": (mapping(), "{name: PIRLJigsaw}"),
    "DATA.DDP_BUCKET_CAP_MB": (number(above=True), "25"),
    "DATA.ENABLE_ASYNC_GPU_COPY": (flag(), "true"),
    "DATA.NUM_DATALOADER_WORKERS": (integer(0, 1024), "4"),
    "DATA.PIN_MEMORY": (flag(), "true"),
    "DATA.TRAIN.PHOTOMETRIC": (mapping(), "{}"),
    **{f"DATA.{split}.{key}": row for split in ("TRAIN", "TEST") for key, row in _SPLIT.items()},
    "DISTRIBUTED.BACKEND": (choice("nccl", "gloo"), "gloo"),
    "DISTRIBUTED.BROADCAST_BUFFERS": (flag(), "true"),
    "DISTRIBUTED.INIT_METHOD": (choice("tcp", "file", "zeus"), "tcp"),
    "DISTRIBUTED.NCCL_DEBUG": (flag(), "false"),
    "DISTRIBUTED.NUM_NODES": (integer(1, 65536), "1"),
    "DISTRIBUTED.NUM_PROC_PER_NODE": (integer(1, 1024), "1"),
    "DISTRIBUTED.RUN_ID": (
        Kind(
            "auto, or HOST:PORT of the first node",
            lambda value: (
                isinstance(value, str)
                and (value == "auto" or 0 < _port(value) < 65536 or "/" in value)
            ),
        ),
        "auto",
    ),
    "HOOKS.CHECK_NAN": (flag(), "true"),
    "HOOKS.PIRL_INPUT.autocast": (choice(None, "bfloat16"), "bfloat16"),
    "HOOKS.PIRL_INPUT.channels_last": (flag(), "true"),
    "HOOKS.PIRL_INPUT.compile": (flag(), "true"),
    "HOOKS.PIRL_INPUT.prefetch": (choice(None, True, False), "true"),
    "HOOKS.PIRL_INPUT.mean": (_MEAN, "[0.485, 0.456, 0.406]"),
    "HOOKS.PIRL_INPUT.std": (_STD, "[0.229, 0.224, 0.225]"),
    "HOOKS.PIRL_MONITOR.enabled": (flag(), "true"),
    "HOOKS.PIRL_MONITOR.every": (integer(1), "1"),
    "HOOKS.PIRL_MONITOR.k": (integer(1), "20"),
    "HOOKS.PIRL_MONITOR.rows": (integer(2), "2048"),
    "HOOKS.PIRL_MONITOR.share": (number(above=True, high=1), "0.01"),
    "HOOKS.TENSORBOARD_SETUP.USE_TENSORBOARD": (flag(), "true"),
    "LOG_FREQUENCY": (integer(1), "100"),
    "LOSS.cross_entropy_multiple_output_single_target.ignore_index": (
        Kind("a whole number", lambda value: type(value) is int),
        "-1",
    ),
    "LOSS.name": (text("the name of a loss"), "pirl_loss"),
    "LOSS.pirl_loss": (mapping(), "{}"),
    "MACHINE.DEVICE": (choice("gpu", "cpu"), "cpu"),
    "METERS.accuracy_list_meter.num_meters": (integer(1), "1"),
    "METERS.accuracy_list_meter.topk_values": (
        list_of(integer(1), "a list of whole numbers in brackets", shortest=1),
        "[1, 5]",
    ),
    "METERS.names": (_TEXTS, "[accuracy_list_meter]"),
    "MODEL.FEATURE_EVAL_SETTINGS.EVAL_MODE_ON": (flag(), "true"),
    "MODEL.FEATURE_EVAL_SETTINGS.EXTRACT_TRUNK_FEATURES_ONLY": (flag(), "false"),
    "MODEL.FEATURE_EVAL_SETTINGS.FREEZE_TRUNK_ONLY": (flag(), "true"),
    "MODEL.FEATURE_EVAL_SETTINGS.SHOULD_FLATTEN_FEATS": (flag(), "false"),
    "MODEL.HEAD.HIDDEN_DIM": (optional(integer(1)), "null"),
    "MODEL.HEAD.IN_DIM": (integer(1), "2048"),
    "MODEL.HEAD.PATCH_DIM": (integer(1), "1000"),
    "MODEL.HEAD.NUM_CLASSES": (integer(1), "1000"),
    "MODEL.HEAD.PARAMS": (
        Kind("a list of heads, each [NAME, {KEY: VALUE}]", lambda value: isinstance(value, list)),
        "[[pirl_head, {in_dim: 2048}]]",
    ),
    "MODEL.SYNC_BN_CONFIG.CONVERT_BN_TO_SYNC_BN": (flag(), "true"),
    "MODEL.SYNC_BN_CONFIG.SYNC_BN_TYPE": (choice("pytorch", "apex"), "pytorch"),
    "MODEL.TRUNK.NAME": (text("the name of a trunk"), "resnet"),
    "MODEL.TRUNK.PIRL_ENSEMBLE.MEMBER": (text("the name of a trunk"), "resnet"),
    "MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES": (
        list_of(text(empty=True), "a list of checkpoints in brackets", shortest=1),
        "[CHECKPOINT_1,CHECKPOINT_2]",
    ),
    "MODEL.TRUNK.PIRL_ENSEMBLE.TRUST_PICKLE": (flag(), "false"),
    "MODEL.TRUNK.PIRL_RESNET.DEPTH": (choice(10, 18, 34, 50, 101, 152), "18"),
    "MODEL.TRUNK.PIRL_RESNET.SMALL_STEM": (flag(), "false"),
    "MODEL.TRUNK.PIRL_RESNET.WIDTH_MULTIPLIER": (number(1 / 64, 64), "1"),
    "MODEL.TRUNK.PIRL_TIMM.NAME": (text("the name of a network of timm"), "resnet50"),
    "MODEL.TRUNK.PIRL_TIMM.OPTIONS": (mapping(), "{}"),
    "MODEL.TRUNK.RESNETS.DEPTH": (choice(50, 101, 152, 200), "50"),
    "MODEL.TRUNK.RESNETS.WIDTH_MULTIPLIER": (integer(1, 64), "1"),
    "MODEL.WEIGHTS_INIT.PARAMS_FILE": (text("a checkpoint's path", empty=True), "CHECKPOINT"),
    "MODEL.WEIGHTS_INIT.SKIP_LAYERS": (_TEXTS, "[num_batches_tracked]"),
    "MODEL.WEIGHTS_INIT.STATE_DICT_KEY_NAME": (text(empty=True), "classy_state_dict"),
    "MODEL.WEIGHTS_INIT.TRUST_PICKLE": (flag(), "false"),
    "MULTI_PROCESSING_METHOD": (choice("forkserver", "spawn", "fork"), "forkserver"),
    "OPTIMIZER.momentum": (number(high=1), "0.9"),
    "OPTIMIZER.name": (text("the name of an optimiser"), "sgd"),
    "OPTIMIZER.nesterov": (flag(), "false"),
    "OPTIMIZER.num_epochs": (integer(1), "100"),
    **{f"OPTIMIZER.param_schedulers.lr.{key}": row for key, row in _SCHEDULE.items()},
    "OPTIMIZER.regularize_bias": (flag(), "false"),
    "OPTIMIZER.regularize_bn": (flag(), "false"),
    "OPTIMIZER.weight_decay": (number(high=1e4), "0.0001"),
    "SEED_VALUE": (integer(0, 2**32 - 1), "0"),
    "SLURM.USE_SLURM": (flag(), "true"),
    "SVM.costs.costs_list": (
        list_of(number(above=True), "a list of numbers above 0 in brackets", shortest=1),
        "[0.1, 1.0, 10.0]",
    ),
    "SVM.cross_val_folds": (integer(2), "3"),
    "SVM.low_shot.k_values": (
        list_of(integer(1), "a list of whole numbers in brackets", shortest=1),
        "[1, 2, 4]",
    ),
    "SVM.low_shot.sample_inds": (
        list_of(integer(1), "a list of whole numbers in brackets", shortest=1),
        "[1, 2, 3]",
    ),
    "SVM.max_iter": (integer(1), "2000"),
    "TEST_EVERY_NUM_EPOCH": (integer(1), "1"),
    "TEST_MODEL": (flag(), "false"),
    "TEST_ONLY": (flag(), "false"),
    MICRO_BATCHES: (integer(1, 65536), "1"),
    "TRAINER.TRAIN_STEP_NAME": (text("the name of a train step"), "standard_train_step"),
    "VERBOSE": (flag(), "false"),
}

# Sections of ours, whole: what is not listed here is a mistake.
OURS: dict[str, tuple[str, ...]] = {
    section: tuple(
        key.removeprefix(f"{section}.") for key in TABLE if key.startswith(f"{section}.")
    )
    for section in (
        "HOOKS.PIRL_INPUT",
        "HOOKS.PIRL_MONITOR",
        "MODEL.TRUNK.PIRL_ENSEMBLE",
        "MODEL.TRUNK.PIRL_RESNET",
        "MODEL.TRUNK.PIRL_TIMM",
    )
}


def check_values(config: dict[str, object]) -> None:
    """Refuse a value that is not what the table says, and an unknown key in a section of ours.

    Args:
        config: the ``config`` section, composed, as plain dictionaries and lists.

    Raises:
        SystemExit: the first such key.
    """
    for key, (kind, example) in TABLE.items():
        value: object = config
        for depth, name in enumerate(names := key.split(".")):
            if not isinstance(value, dict):
                section = ".".join(names[:depth])
                refuse(
                    f"config.{section} = {shown(value)}: expected a section of keys; set one of "
                    f"its keys, such as config.{key}={example}"
                )
            if name not in value:
                break
            value = value[name]
        else:
            if not kind.holds(value):
                fits = f"set config.{key}={example}"
                if kind.holds(_as_text(value)):  # a folder's name, such as 2024
                    quoted = in_quotes(f"config.{key}", _as_text(value))
                    fits = f"write what reads as a number in quotes, {quoted}"
                refuse(f"config.{key} = {shown(value)}: expected {kind.expected}; {fits}")
    for section, known in OURS.items():
        found = find(config, section)
        for name in found if isinstance(found, dict) else ():
            if name not in known:
                refuse(
                    f"config.{section}.{name} = {shown(found[name])}: expected one of the keys "
                    f"{', '.join(known)}; {nearest(str(name), known)}"
                )


def _as_text(value: object) -> object:
    """``…`` for a number, and for those of a list: 2024 may have been given as 2_024."""
    if isinstance(value, list):
        return [_as_text(entry) for entry in value]
    return "…" if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def find(tree: object, key: str) -> Any:
    """The value at a dotted key of nested dictionaries; None where there is none."""
    for name in key.split("."):
        if not isinstance(tree, dict) or name not in tree:
            return None
        tree = tree[name]
    return tree


def _port(address: str) -> int:
    port = address.rpartition(":")[2] if ":" in address else ""
    return int(port) if port.isdecimal() and port.isascii() else 0
