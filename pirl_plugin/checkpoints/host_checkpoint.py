"""What the host's checkpoints hold, as far as this plugin reads them and adds to them."""

from __future__ import annotations

import re
from typing import Any, Final, TypedDict

CHECKPOINT_NAME = re.compile(
    r"model_(final_checkpoint_)?(?P<kind>phase|iteration)(?P<number>\d+)\.torch"
)

PLUGIN_SECTION: Final = "pirl_plugin"
"""Key of what this plugin adds to a checkpoint."""


class ClassyState(TypedDict, total=False):
    """The state of the host's task; tensors in nested dictionaries."""

    base_model: dict[str, object]
    optimizer: dict[str, object]


class HostCheckpoint(TypedDict, total=False):
    """A file ``model_*.torch`` of a run."""

    classy_state_dict: ClassyState
    loss: dict[str, Any]  # tensors by name, and ``_extra_state``
    iteration: int  # training steps done
    iteration_num: int  # the step within its epoch
    phase_idx: int  # epochs and the tests between them, from 0
    train_phase_idx: int  # the epoch, from 0
    pirl_plugin: dict[str, object]  # what the run's hooks add
