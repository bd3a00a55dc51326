"""How threads of a run on a CPU wait for each other."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_POLICY = "OMP_WAIT_POLICY"
_GPUS = ("nvidia[0-9]*", "kfd", "dxg")  # NVIDIA's, AMD's, and those of Windows below WSL
_ON_CPU = ("machines=cpu", "MACHINE.DEVICE=cpu")


def wait_passively(overrides: Sequence[str], devices: Path = Path("/dev")) -> None:
    """Have OpenMP's threads sleep while they wait, where the model runs on a CPU.

    By default they spin for milliseconds at the end of each parallel region. With more threads than
    free cores, those that wait so take the cores of those that are waited for: of a loader's
    worker, of another program. A value of ``OMP_WAIT_POLICY`` that is set already is kept.

    OpenMP reads it once, when torch is loaded; afterwards this does nothing.

    Args:
        overrides: of the run's configuration.
        devices: where the system lists its devices.
    """
    has_gpu = any(next(devices.glob(name), None) for name in _GPUS)
    on_cpu = any(part in override for part in _ON_CPU for override in overrides)
    if "torch" not in sys.modules and (on_cpu or not has_gpu):
        os.environ.setdefault(_POLICY, "PASSIVE")
