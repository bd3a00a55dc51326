"""How threads of a run on a CPU wait for each other."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.utils.config_root import config_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

_POLICY = "OMP_WAIT_POLICY"
_GPUS = ("nvidia[0-9]*", "kfd", "dxg")  # NVIDIA's, AMD's, and those of Windows below WSL
_ON_CPU = ("machines=cpu", "MACHINE.DEVICE=cpu")
_HOST_SCRIPT = "run_distributed_engines.py"


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


def wait_passively_in_the_hosts_script(module: ModuleType) -> None:
    """Do as :func:`wait_passively` where the host's script runs a config of ours.

    Called before the host is imported, so before torch is. All else that imports the host, and the
    script with a config of the host's own, stay as they are.

    Args:
        module: the host.
    """
    script, *overrides = getattr(sys, "argv", None) or [""]
    if os.path.basename(script) != _HOST_SCRIPT:
        return
    configs = [
        value for name, _, value in (o.partition("=") for o in overrides) if name == "config"
    ]
    if any((config_root() / "config" / f"{config}.yaml").is_file() for config in configs):
        wait_passively(overrides)


@contextmanager
def passive_ranks(config: Any) -> Iterator[None]:
    """Have processes that start meanwhile wait as :func:`wait_passively` says, on a CPU.

    Ranks of a run of several, and of a config that is not ours by name, get the policy this way.

    Args:
        config: the host's configuration.
    """
    sets = config.MACHINE.DEVICE == "cpu" and _POLICY not in os.environ
    if sets:
        os.environ[_POLICY] = "PASSIVE"
    try:
        yield
    finally:
        if sets:
            os.environ.pop(_POLICY, None)
