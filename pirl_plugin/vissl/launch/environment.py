"""The environment as the host may log it: values of variables that may hold a secret are masked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pirl_plugin.vissl.host_module import HostModule

MASK = "(not logged)"
# Variables that say how a run was set up. All others may hold anything.
_LOGGED = re.compile(
    r"(CUDA|NCCL|NVIDIA|GLOO|TORCH|PYTORCH|TRITON|OMP|MKL|OPENBLAS|NUMBA|KMP|SLURM|SUBMITIT|PIRL|"
    r"VISSL|PYTHON|VIRTUAL|CONDA|LD|LC|LANG|HYDRA|OMPI|UCX|XDG_RUNTIME)(_\w*)?|"
    r"PYTHON\w+|PATH|HOME|PWD|SHELL|TERM|TMPDIR|HOSTNAME|USER|LOGNAME|WORLD_SIZE|RANK|LOCAL_RANK|"
    r"MASTER_ADDR|MASTER_PORT|NODE_RANK|TZ"
)
_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASS|PWORD|CREDENTIAL|AUTH|COOKIE|SESSION|PRIVATE|JWT|CERT|SIGNATURE|\bPAT\b",
    re.IGNORECASE,
)
_URL_PASSWORD = re.compile(r"://[^/@\s]+@")


def masked(environment: Mapping[str, str]) -> dict[str, str]:
    """A copy with :data:`MASK` for the value of each variable that is not known to be harmless.

    Example:
        >>> masked({"OMP_NUM_THREADS": "2", "WANDB_API_KEY": "k", "SLURM_JWT": "j", "DB": "d"})
        {'OMP_NUM_THREADS': '2', 'WANDB_API_KEY': '(not logged)', 'SLURM_JWT': '(not logged)', \
'DB': '(not logged)'}
    """
    return {
        name: _URL_PASSWORD.sub(f"://{MASK}@", value)
        if _LOGGED.fullmatch(name) and not _SECRET.search(name)
        else MASK
        for name, value in environment.items()
    }


def mask_logged_environment(module: HostModule) -> None:
    """Have an engine of the host log the masked environment, in this process.

    Args:
        module: one whose ``print_system_env_info`` takes the environment.
    """
    original = getattr(module, "print_system_env_info", None)
    if original is None or hasattr(original, "pirl_plugin_original"):
        return

    def print_system_env_info(current_env: Mapping[str, str]) -> None:
        original(masked(current_env))

    print_system_env_info.pirl_plugin_original = original  # type: ignore[attr-defined]
    module.print_system_env_info = print_system_env_info
