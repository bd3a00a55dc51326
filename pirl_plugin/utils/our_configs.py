"""What configurations say of this plugin: whether they are its own, and how batches are split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MICRO_BATCHES = "TRAINER.PIRL_MICRO_BATCHES"
"""Key of the number of micro-batches that a process's batch is split into."""
VISSL_PIRL = "pretrain/pirl/pirl_jigsaw_4node_resnet50"
"""VISSL's own PIRL, which this plugin's is compared with: its ``config=``."""
TRAIN_STEP = "pirl_micro_batches"
"""``TRAINER.TRAIN_STEP_NAME`` of the train step that does so."""

SVM_SCRIPTS = {
    "benchmark/pirl/svm_voc07": "tools.train_svm",
    "benchmark/pirl/svm_voc07_low_shot": "tools.train_svm_low_shot",
}
"""Configs that are not for the host's engine -> the script of the host that they are for."""


def is_ours(config: Mapping[str, Any]) -> bool:
    """Whether a whole configuration of the host is of a run of this plugin.

    It is one if its loss is ``pirl_loss``, or if ``HOOKS`` has one of the sections ``PIRL_INPUT``
    (all of ``pretrain/pirl``) and ``PIRL_RUN`` (these and all of ``benchmark/pirl``).

    Args:
        config: the host's ``AttrDict``, or any mapping of the same shape.
    """
    hooks = config.get("HOOKS") or {}
    loss = (config.get("LOSS") or {}).get("name")
    return loss == "pirl_loss" or "PIRL_INPUT" in hooks or "PIRL_RUN" in hooks


def num_micro_batches(config: Mapping[str, Any]) -> int:
    """Micro-batches of a batch of one process; 1 where the host's own train step runs.

    Args:
        config: the host's ``AttrDict``, or any mapping of the same shape.
    """
    section, _, key = MICRO_BATCHES.partition(".")
    trainer = config.get(section) or {}
    return int(trainer.get(key, 1)) if trainer.get("TRAIN_STEP_NAME") == TRAIN_STEP else 1
