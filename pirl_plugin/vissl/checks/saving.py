"""Refuse values that say when checkpoints are written and kept, and mean nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

from pirl_plugin.utils.our_configs import is_ours
from pirl_plugin.vissl.checks.refusal import refuse

if TYPE_CHECKING:
    from vissl.config import AttrDict


def check_saving(config: AttrDict) -> None:
    """Refuse values of ``CHECKPOINT.PIRL`` that mean nothing.

    Raises:
        SystemExit: which key, and what is expected.
    """
    from pirl_plugin.checkpoints.run_folder import Keep

    if is_ours(config):
        section, known = config.CHECKPOINT.get("PIRL") or {}, [field.name for field in fields(Keep)]
        unknown = [section] if not isinstance(section, Mapping) else sorted(set(section) - {*known})
        if unknown:
            refuse(
                f"config.CHECKPOINT.PIRL: expected some of {', '.join(known)}, and "
                f"found {unknown[0]}; remove it, or correct its name"
            )
        try:
            Keep(**section)
        except ValueError as error:
            refuse(f"config.{error}", error)
