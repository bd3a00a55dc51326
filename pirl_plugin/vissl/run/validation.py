"""Validate configurations before runs start, for mistakes that are common, silent and costly.

Hydra, OmegaConf, VISSL or torch report all other mistakes. The command line prints any exception as
one sentence.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pirl_plugin.method.settings import PIRLLossConfig
from pirl_plugin.system.failures import Refused, check, check_name
from pirl_plugin.vissl.own_parts import import_own_part, is_own_part
from pirl_plugin.vissl.resume.folder import Keep
from pirl_plugin.vissl.sections import (
    InputSettings,
    MonitorSettings,
    RunSettings,
    read_section,
)

if TYPE_CHECKING:
    from omegaconf import DictConfig

SECTIONS = {
    "LOSS.pirl_loss": PIRLLossConfig,
    "HOOKS.PIRL_INPUT": InputSettings,
    "HOOKS.PIRL_MONITOR": MonitorSettings,
    "HOOKS.PIRL_RUN": RunSettings,
    "CHECKPOINT.PIRL": Keep,
}
_LR = "config.OPTIMIZER.param_schedulers.lr"
_BASE_RATE = "auto_lr_scaling.base_value"
# With 0, a run would train nothing, or divide by it after the first epoch.
_POSITIVE = (
    "config.CHECKPOINT.CHECKPOINT_FREQUENCY",
    "config.DATA.TRAIN.BATCHSIZE_PER_REPLICA",
    "config.LOG_FREQUENCY",
    "config.OPTIMIZER.num_epochs",
)
# Scheduler -> key for the learning rates.
_RATES = {"constant": "value", "multistep": "values", "cosine": "start_value"}


def validate(composed: DictConfig, overrides: Sequence[str]) -> None:
    """Validate our sections, the device, SLURM, counts and the learning rate.

    Args:
        composed: the complete configuration, resolved.
        overrides: overrides from the command line.

    Raises:
        Refused: the first mistake.
    """
    from omegaconf import OmegaConf

    values: Any = OmegaConf.to_container(composed)
    config = values["config"]
    loss = config["LOSS"].get("pirl_loss") or {}
    if is_own_part(loss.get("estimator")):
        import_own_part(loss["estimator"])
        loss["estimator"] = "nce"  # in this copy: the section knows only our names
    for key, kind in SECTIONS.items():
        if key != "LOSS.pirl_loss" or config["LOSS"]["name"] == "pirl_loss":
            read_section(kind, config, key)
    # VISSL trains on the CPU for any other name, such as cuda.
    check_name("config.MACHINE.DEVICE", config["MACHINE"]["DEVICE"], ("gpu", "cpu"))
    slurm = config["SLURM"]
    if slurm["USE_SLURM"]:
        # Without srun, submitit would start the job on this machine, in the background.
        is_ready = bool(shutil.which("srun") and slurm["PARTITION"])
        expected = "srun on the PATH, and the name of a partition as config.SLURM.PARTITION"
        check("config.SLURM.USE_SLURM", True, is_ready, expected)
    for key in _POSITIVE:
        number = OmegaConf.select(composed, key)
        is_positive = isinstance(number, int) and number > 0
        check(key, number, is_positive, "a whole number above 0")
    # Overrides must set the learning rate that is in use.
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
