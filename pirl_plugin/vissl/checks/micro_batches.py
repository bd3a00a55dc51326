"""Refuse micro-batches that a run cannot have, before anything is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pirl_plugin.utils.our_configs import MICRO_BATCHES, TRAIN_STEP, num_micro_batches
from pirl_plugin.vissl.checks.refusal import refuse

if TYPE_CHECKING:
    from vissl.config import AttrDict

_LOSSES = ("pirl_loss", "cross_entropy_multiple_output_single_target")


def check_micro_batches(config: AttrDict) -> None:
    """See that a batch splits into ``TRAINER.PIRL_MICRO_BATCHES`` parts whose losses add up.

    Raises:
        SystemExit: what was found, what was expected and what to do.
    """
    section, _, key = MICRO_BATCHES.partition(".")
    asked, found = config[section].get(key, 1), num_micro_batches(config)
    if asked != found:
        refuse(
            f"config.{MICRO_BATCHES} = {asked} with config.TRAINER.TRAIN_STEP_NAME = "
            f"'{config.TRAINER.TRAIN_STEP_NAME}': expected config.TRAINER.TRAIN_STEP_NAME="
            f"{TRAIN_STEP}, the train step that splits a batch; leave that key out, or set "
            f"config.{MICRO_BATCHES}=1"
        )
    if found == 1:
        return
    batch = config.DATA.TRAIN.BATCHSIZE_PER_REPLICA
    if batch % found:
        near = [n for n in range(1, batch + 1) if batch % n == 0]
        refuse(
            f"config.{MICRO_BATCHES} = {found}: expected a number that divides "
            f"config.DATA.TRAIN.BATCHSIZE_PER_REPLICA = {batch}, which is the whole batch of a "
            f"process; set config.{MICRO_BATCHES}={min(near, key=lambda n: abs(n - found))}"
        )
    loss = config.LOSS[config.LOSS.name] if config.LOSS.name in _LOSSES else None
    if loss is None or loss.get("weight") is not None:
        weighted = "" if loss is None else " with weights of classes"
        refuse(
            f"config.{MICRO_BATCHES} = {found} with config.LOSS.name = '{config.LOSS.name}'"
            f"{weighted}: expected {' or '.join(_LOSSES)} without weights, a mean over images; set "
            f"config.{MICRO_BATCHES}=1"
        )
    precision = config.MODEL.AMP_PARAMS
    if precision.USE_AMP and precision.AMP_TYPE == "apex":
        refuse(
            f"config.{MICRO_BATCHES} = {found} with config.MODEL.AMP_PARAMS.AMP_TYPE = 'apex': "
            f"expected pytorch; set config.MODEL.AMP_PARAMS.AMP_TYPE=pytorch"
        )
