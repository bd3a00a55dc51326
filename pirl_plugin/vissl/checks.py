"""Checks of our runs before the start: only mistakes that are common, silent and costly.

Hydra, OmegaConf, the host or torch report all other mistakes; the command line turns any exception
into one sentence. A check raises ``ValueError`` or ``FileNotFoundError`` with
``KEY = VALUE: expected …; do …``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pirl_plugin.failures import Refused
from pirl_plugin.images.names import DISK_FOLDER, SOURCES
from pirl_plugin.loss import PIRLLossConfig
from pirl_plugin.settings import is_ours
from pirl_plugin.vissl.resume.folder import Keep
from pirl_plugin.vissl.sections import InputSettings, MonitorSettings, RunSettings, read_section

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from vissl.config import AttrDict

SECTIONS = {
    "LOSS.pirl_loss": PIRLLossConfig,
    "HOOKS.PIRL_INPUT": InputSettings,
    "HOOKS.PIRL_MONITOR": MonitorSettings,
    "HOOKS.PIRL_RUN": RunSettings,
    "CHECKPOINT.PIRL": Keep,
}
_RATE, _SCALES = "config.OPTIMIZER.param_schedulers.lr.", "auto_lr_scaling.auto_scale"
_RATES = {"constant": "value", "multistep": "values", "cosine": "start_value"}  # scheduler → key


def check_composed(composed: DictConfig, overrides: Sequence[str]) -> None:
    """Check our sections and the learning rate; ignore configurations of other runs.

    Args:
        composed: the whole configuration of OmegaConf.
        overrides: overrides of the command line.

    Raises:
        ValueError: the first mistake.
    """
    from omegaconf import OmegaConf

    whole: Any = OmegaConf.to_container(composed, resolve=True)
    config = whole["config"]
    if not is_ours(config):
        return
    for key, kind in SECTIONS.items():
        if key != "LOSS.pirl_loss" or config["LOSS"]["name"] == "pirl_loss":
            read_section(kind, config, key)
    loss = config["LOSS"]["name"]
    name, scales = (OmegaConf.select(composed, _RATE + key) for key in ("name", _SCALES))
    used = "auto_lr_scaling.base_value" if scales else _RATES.get(name)
    for override in overrides:
        key = override.lstrip("+").partition("=")[0].removeprefix(_RATE)
        if key.startswith("config.LOSS.") and key.split(".")[2] not in ("name", loss):
            logging.root.warning(f"{override}: not used, as config.LOSS.name = {loss}")
        if used and key != used and key in ("auto_lr_scaling.base_value", *_RATES.values()):
            raise Refused(
                f"{override}: expected a key that is used with {_RATE}name = {name} and "
                f"{_RATE}{_SCALES} = {scales}; set {_RATE}{used}"
            )


def check_run(config: AttrDict, engine_name: str = "train") -> None:
    """Check device, data and heads.

    Args:
        config: the host's complete configuration; configurations of other runs are ignored.
        engine_name: ``train``, or ``extract_features`` in the host's SVM scripts.

    Raises:
        ValueError: the first mistake.
        FileNotFoundError: the data do not exist.
    """
    if not is_ours(config):
        return
    if engine_name == "train" and config.MODEL.FEATURE_EVAL_SETTINGS.EXTRACT_TRUNK_FEATURES_ONLY:
        raise Refused(
            "config.MODEL.FEATURE_EVAL_SETTINGS.EXTRACT_TRUNK_FEATURES_ONLY = true: expected the "
            "host's SVM script; write python -m tools.train_svm or python -m "
            "tools.train_svm_low_shot config=NAME …"
        )
    _check_device(config)
    _check_data(config)
    _check_heads(config)


def splits_of(config: AttrDict) -> list[str]:
    """Return the splits that a run reads."""
    return ["TRAIN"] * (not config.TEST_ONLY) + ["TEST"] * bool(config.TEST_MODEL)


def _check_device(config: AttrDict) -> None:
    import torch

    wanted, found = config.DISTRIBUTED.NUM_PROC_PER_NODE, torch.cuda.device_count()
    if config.MACHINE.DEVICE == "gpu" and wanted > found:
        remedy = "+config/pirl/machines=cpu" if not found else f"NUM_PROC_PER_NODE={found}"
        raise Refused(
            f"config.DISTRIBUTED.NUM_PROC_PER_NODE = {wanted} with config.MACHINE.DEVICE = gpu: "
            f"expected as many GPUs, found {found}; give {remedy}"
        )


def sources_of(config: AttrDict, split: str) -> list[tuple[str, str]]:
    """Return name and path of a split's source if it is from this plugin, else an empty list."""
    from vissl.data.dataset_catalog import VisslDatasetCatalog, get_data_files

    data, key = config.DATA[split], f"config.DATA.{split}"
    paths, names = list(data.DATA_PATHS), list(data.DATASET_NAMES)
    if pickles := [p for p in (*paths, *data.LABEL_PATHS) if str(p).endswith((".pkl", ".pickle"))]:
        raise Refused(
            f"{key} names {pickles[0]}: expected no pickle, which could run code; name a .npy "
            f"file, or a text file with a path on each line"
        )
    if not set(data.DATA_SOURCES) & set(SOURCES):
        return []
    if not paths and not all(map(VisslDatasetCatalog.has_data, names)):
        raise Refused(
            f"{key}.DATA_PATHS = []: expected a path, because no catalog lists {names}; set "
            f"{key}.DATA_PATHS=[DIR], or PIRL_DATASETS=DIR in the environment"
        )
    if len(paths) > 1 or len(data.DATA_SOURCES) != 1:
        raise Refused(
            f"{key}.DATA_PATHS = {paths}: expected one path and one source; name all images in one "
            f"list, with +config/pirl/datasets=filelist"
        )
    return list(zip(data.DATA_SOURCES, get_data_files(split, config.DATA)[0], strict=True))


def _check_data(config: AttrDict) -> None:
    """Check that there are images, and that training and test images have the same classes."""
    from pirl_plugin.images.folders import class_folders
    from pirl_plugin.vissl.adapters.data import check_source

    classes = {}
    for split in splits_of(config):
        for source, path in sources_of(config, split):
            check_source(config, source, str(path), split)
            if source == DISK_FOLDER and list(config.DATA[split].LABEL_SOURCES) == [DISK_FOLDER]:
                classes[path] = set(class_folders(path))
    if len(classes) == 2:
        (train, trained), (test, tested) = classes.items()
        if trained != tested:
            raise Refused(
                f"config.DATA.TEST.DATA_PATHS: expected the same subfolders in {test} as in {train}"
                f", because they are the classes; only one has '{min(trained ^ tested)}'"
            )
    count, head = max(map(len, classes.values()), default=0), config.MODEL.HEAD
    if count > head.get("NUM_CLASSES", count):
        raise Refused(
            f"config.MODEL.HEAD.NUM_CLASSES = {head.NUM_CLASSES}: expected at least {count}, the "
            f"number of subfolders; set config.MODEL.HEAD.NUM_CLASSES={count}"
        )


def _check_heads(config: AttrDict) -> None:
    """Check that our heads take the trunk's features."""
    from pirl_plugin.models.trunks import trunk_width

    width = trunk_width(config.MODEL.TRUNK)
    for head in config.MODEL.HEAD.PARAMS:
        if head[0] == "pirl_head" and width not in (None, head[1]["in_dim"]):
            raise Refused(
                f"config.MODEL.HEAD.IN_DIM = {head[1]['in_dim']}: expected {width}, the width of "
                f"config.MODEL.TRUNK.NAME = {config.MODEL.TRUNK.NAME}"
            )
