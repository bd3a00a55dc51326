"""Which configurations are this plugin's: all others run as they would without it."""

from __future__ import annotations

from typing import Any


def is_ours(config: Any) -> bool:
    """Whether a whole configuration of the host is of a run of this plugin.

    It is one if its loss is ``pirl_loss``, or if ``HOOKS`` has one of the sections ``PIRL_INPUT``
    (all of ``pretrain/pirl``) and ``PIRL_RUN`` (these and all of ``benchmark/pirl``).

    Args:
        config: the host's ``AttrDict``, or any mapping of the same shape.
    """
    hooks = config.get("HOOKS") or {}
    loss = (config.get("LOSS") or {}).get("name")
    return loss == "pirl_loss" or "PIRL_INPUT" in hooks or "PIRL_RUN" in hooks
