"""Check runs before they start, for mistakes that are common, silent and costly.

Hydra, OmegaConf, VISSL or torch report all other mistakes. The command line prints any exception as
one sentence.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pirl_plugin.method.settings import PIRLLossConfig
from pirl_plugin.system.failures import MissingFile, Refused
from pirl_plugin.vissl.resume.folder import Keep
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
# Scheduler -> key for the learning rates.
_RATES = {"constant": "value", "multistep": "values", "cosine": "start_value"}
# Integers of at least 1; 0 would divide by zero or train nothing.
_POSITIVE = (
    "TRAINER.PIRL_MICRO_BATCHES",
    "DATA.TRAIN.BATCHSIZE_PER_REPLICA",
    "OPTIMIZER.num_epochs",
    "CHECKPOINT.CHECKPOINT_FREQUENCY",
    "LOG_FREQUENCY",
)


def check_composed(composed: DictConfig, overrides: Sequence[str]) -> None:
    """Check our sections and the learning rate.

    Args:
        composed: the complete configuration, resolved.
        overrides: overrides from the command line.

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
        if number is not None and (type(number) is not int or number < 1):
            raise Refused(f"config.{key} = {number}: expected an integer of at least 1")
    _check_rates(composed, overrides)


def _check_rates(composed: DictConfig, overrides: Sequence[str]) -> None:
    """Check that learning rates are positive, and that overrides set the ones in use."""
    from omegaconf import OmegaConf

    section = OmegaConf.select(composed, _LR)
    scales = section.auto_lr_scaling.auto_scale
    used = _BASE_RATE if scales else _RATES.get(section.name)
    if used is None:
        return
    for override in overrides:
        key = override.lstrip("+").partition("=")[0].removeprefix(f"{_LR}.")
        if key != used and key in (_BASE_RATE, *_RATES.values()):
            raise Refused(
                f"{override}: this key is not used with {_LR}.name = {section.name} and "
                f"{_LR}.auto_lr_scaling.auto_scale = {scales}. Set {_LR}.{used}."
            )
    rates = OmegaConf.select(section, used)
    for rate in rates if OmegaConf.is_list(rates) else [rates]:
        if not (isinstance(rate, (int, float)) and 0 < rate < math.inf):
            raise Refused(f"{_LR}.{used} = {rates}: expected a positive number")


def check_run(config: AttrDict) -> None:
    """Check a run's initial weights, nodes and device; the data set checks the data.

    Args:
        config: VISSL's complete configuration.

    Raises:
        Refused: the first mistake.
    """
    import torch

    weights = config.MODEL.WEIGHTS_INIT.PARAMS_FILE
    is_address = "://" in weights  # for VISSL's path managers
    if weights and not is_address and not os.path.isfile(weights):
        raise MissingFile(
            f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE = {weights}: no such file. Choose a file such "
            f"as checkpoint.torch in a run's folder."
        )
    section = config.DISTRIBUTED
    if section.NUM_NODES > 1 and section.INIT_METHOD == "tcp" and section.RUN_ID == "auto":
        raise Refused(
            f"config.DISTRIBUTED.NUM_NODES = {section.NUM_NODES}: several nodes need SLURM, "
            f"torchrun, or config.DISTRIBUTED.RUN_ID=HOST:PORT and node_id=N on each node. On one "
            f"machine, add +config/pirl/machines=1node_8gpu, 1gpu or cpu."
        )
    gpus = torch.cuda.device_count()
    processes = section.NUM_PROC_PER_NODE
    if config.MACHINE.DEVICE == "gpu" and processes > gpus:
        raise Refused(
            f"config.DISTRIBUTED.NUM_PROC_PER_NODE = {processes}, but torch finds {gpus} GPUs on "
            f"this machine. Lower it, or if there is no GPU, add +config/pirl/machines=cpu "
            f"(cpu_small for pre-training)."
        )
