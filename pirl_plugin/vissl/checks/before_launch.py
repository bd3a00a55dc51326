"""The checks of a run, in the order in which the launcher makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pirl_plugin.vissl.checks.classes import check_classes
from pirl_plugin.vissl.checks.combinations import check_combination
from pirl_plugin.vissl.checks.data import check_data
from pirl_plugin.vissl.checks.images import check_images
from pirl_plugin.vissl.checks.initial_weights import check_initial_weights
from pirl_plugin.vissl.checks.listed_files import check_listed_files
from pirl_plugin.vissl.checks.machine import (
    check_draw_memory,
    check_folder,
    check_machine,
    check_scores,
    check_slurm,
)
from pirl_plugin.vissl.checks.micro_batches import check_micro_batches
from pirl_plugin.vissl.checks.model import check_shapes
from pirl_plugin.vissl.checks.saving import check_saving

if TYPE_CHECKING:
    from collections.abc import Callable

    from vissl.config import AttrDict

__all__ = ["CHECKS", "check_machine"]

CHECKS: tuple[Callable[[AttrDict], None], ...] = (
    check_folder,
    check_slurm,
    check_combination,
    check_micro_batches,
    check_draw_memory,
    check_scores,
    check_shapes,
    check_data,
    check_listed_files,
    check_images,
    check_classes,
    check_initial_weights,
    check_saving,
)
