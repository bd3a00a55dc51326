"""Checks of our runs before the start: only mistakes that are common, silent and costly.

Hydra, OmegaConf, the host or torch report all other mistakes; the command line turns any exception
into one sentence. A check raises ``Refused`` with ``KEY = VALUE: expected …; do …``.
"""

from __future__ import annotations

import importlib
import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.method.settings import PIRLLossConfig
from pirl_plugin.system.failures import MissingFile, Refused, sentence
from pirl_plugin.vissl.resume.folder import Keep
from pirl_plugin.vissl.run.rank import torchrun_local_rank
from pirl_plugin.vissl.sections import (
    InputSettings,
    MonitorSettings,
    RunSettings,
    read_section,
)

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
_LR = "config.OPTIMIZER.param_schedulers.lr"
_BASE_RATE = "auto_lr_scaling.base_value"
# Scheduler -> the key of its rate, or of its rates.
_RATES = {"constant": "value", "multistep": "values", "cosine": "start_value"}
# Whole numbers from 1; with 0, a run would end in a division by zero, or without training.
_POSITIVE = (
    "DATA.TRAIN.BATCHSIZE_PER_REPLICA",
    "OPTIMIZER.num_epochs",
    "CHECKPOINT.CHECKPOINT_FREQUENCY",
    "LOG_FREQUENCY",
)


def check_composed(composed: DictConfig, overrides: Sequence[str]) -> None:
    """Check our sections and the learning rate.

    Args:
        composed: the whole configuration of OmegaConf, resolved.
        overrides: overrides of the command line.

    Raises:
        Refused: the first mistake.
    """
    from omegaconf import OmegaConf

    values: Any = OmegaConf.to_container(composed)
    config = values["config"]
    for key, kind in SECTIONS.items():
        if key != "LOSS.pirl_loss" or config["LOSS"]["name"] == "pirl_loss":
            read_section(kind, config, key)
    for key in _POSITIVE:
        number = OmegaConf.select(composed.config, key)
        if type(number) is not int or number < 1:
            raise Refused(f"config.{key} = {number}: expected a whole number from 1")
    if config["MACHINE"]["DEVICE"] not in ("cpu", "gpu"):
        raise Refused(f"config.MACHINE.DEVICE = {config['MACHINE']['DEVICE']}: expected cpu or gpu")
    _check_rates(composed, overrides)


def _check_rates(composed: DictConfig, overrides: Sequence[str]) -> None:
    """Check that the learning rates are positive, fit the epochs, and are those that are used."""
    from omegaconf import OmegaConf

    section = OmegaConf.select(composed, _LR)
    epochs = composed.config.OPTIMIZER.num_epochs
    if section.name == "multistep" and epochs < len(section["values"]):
        raise Refused(
            f"config.OPTIMIZER.num_epochs = {epochs}: expected at least one epoch for each of "
            f"{_LR}.values = {section['values']}; set more epochs, or fewer rates"
        )
    scales = section.auto_lr_scaling.auto_scale
    used = _BASE_RATE if scales else _RATES.get(section.name)
    if used is None:
        return
    for override in overrides:
        key = override.lstrip("+").partition("=")[0].removeprefix(f"{_LR}.")
        if key != used and key in (_BASE_RATE, *_RATES.values()):
            raise Refused(
                f"{override}: expected a key that is used with {_LR}.name = {section.name} and "
                f"{_LR}.auto_lr_scaling.auto_scale = {scales}; set {_LR}.{used}"
            )
    rates = OmegaConf.select(section, used)
    for rate in rates if OmegaConf.is_list(rates) else [rates]:
        if not (isinstance(rate, (int, float)) and 0 < rate < math.inf):
            raise Refused(f"{_LR}.{used} = {rates}: expected a number above 0")


def check_run(config: AttrDict, engine_name: str = "train") -> None:
    """Check engine, initial weights, nodes and device of a run; its data set checks the data.

    Args:
        config: the host's complete configuration.
        engine_name: ``train``, or ``extract_features`` in the host's SVM scripts.

    Raises:
        Refused: the first mistake.
    """
    if engine_name == "train" and config.MODEL.FEATURE_EVAL_SETTINGS.EXTRACT_TRUNK_FEATURES_ONLY:
        script = Path(str(importlib.import_module("vissl").__file__)).parents[1] / "tools"
        raise Refused(
            "config.MODEL.FEATURE_EVAL_SETTINGS.EXTRACT_TRUNK_FEATURES_ONLY = true: expected the "
            f"host's SVM script; write python {script / 'train_svm.py'} config=NAME …, or "
            f"train_svm_low_shot.py for few images"
        )
    weights = config.MODEL.WEIGHTS_INIT.PARAMS_FILE
    is_address = "://" in weights  # of the host's path managers
    if weights and not is_address and not os.path.isfile(weights):
        raise MissingFile(
            f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE = {weights}: expected a file that exists, such "
            f"as checkpoint.torch in the folder of a run"
        )
    nodes = config.DISTRIBUTED
    if nodes.NUM_NODES > 1 and nodes.INIT_METHOD == "tcp" and nodes.RUN_ID == "auto":
        raise Refused(
            f"config.DISTRIBUTED.NUM_NODES = {nodes.NUM_NODES}: expected SLURM, torchrun, or "
            f"config.DISTRIBUTED.RUN_ID=HOST:PORT and node_id=N on each node; on one machine add "
            f"+config/pirl/machines=1node_8gpu, 1gpu or cpu"
        )
    if config.MACHINE.DEVICE == "gpu":
        _check_gpus(config)


def check_slurm(config: AttrDict) -> None:
    """Check that a job of SLURM can be submitted; otherwise submitit would run it here, unseen.

    Raises:
        Refused: there is no SLURM on this machine, or no partition is named.
    """
    if shutil.which("srun") is None:
        raise Refused(
            "config.SLURM.USE_SLURM = true: expected SLURM's srun on the PATH, found none; load "
            "your cluster's SLURM module, or remove this override, and on one machine add "
            "+config/pirl/machines=1node_8gpu, 1gpu or cpu"
        )
    if not config.SLURM.PARTITION:
        raise Refused(
            "config.SLURM.PARTITION is empty: expected a partition of your cluster; sinfo lists "
            "them"
        )


def _check_gpus(config: AttrDict) -> None:
    """Check that there are as many GPUs as processes, and say why there are fewer."""
    import torch

    processes = config.DISTRIBUTED.NUM_PROC_PER_NODE
    gpus = torch.cuda.device_count()
    if processes <= gpus:
        return
    problem = (
        f"config.DISTRIBUTED.NUM_PROC_PER_NODE = {processes} with config.MACHINE.DEVICE = gpu: "
        f"expected as many GPUs, found {gpus}"
    )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        problem += f" (CUDA_VISIBLE_DEVICES={visible})"
    if gpus == 0:
        raise Refused(
            f"{problem}: {_why_no_gpu()}; without a GPU, add +config/pirl/machines=cpu, or "
            f"cpu_small to pre-train"
        )
    if torchrun_local_rank() is not None:
        raise Refused(
            f"{problem}; let each process see all GPUs of its node, as with srun --gpu-bind=none, "
            f"or start torchrun with --nproc-per-node {gpus}"
        )
    raise Refused(f"{problem}; add config.DISTRIBUTED.NUM_PROC_PER_NODE={gpus}")


def _why_no_gpu() -> str:
    """Return why torch sees no GPU, and what to do."""
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        return "this build of torch is for CPUs; install a build for CUDA"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        # Such as "The NVIDIA driver on your system is too old (found version 11040)."
        reason = sentence(error).removeprefix("AssertionError: ")
        return reason.split(". ")[0].rstrip(".")
    return "the environment hides the GPUs"
