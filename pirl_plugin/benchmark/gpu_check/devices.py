"""What a check runs on."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
from typing import Any

from pirl_plugin.benchmark.gpu_check.parts import ROOT


def find_devices() -> list[str]:
    """Names of the GPUs that torch sees; none where there is no torch either."""
    if importlib.util.find_spec("torch") is None:
        return []
    import torch

    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]


def describe(devices: list[str]) -> dict[str, Any]:
    """What identifies the machine, for ``gpu.json``: hardware and versions."""
    import torch

    from pirl_plugin import __version__
    from pirl_plugin.benchmark.command import machine

    found = {
        **machine(),
        "gpu": devices[0],
        "gpus": len(devices),
        "cores": os.cpu_count(),
        "triton": _version("triton"),
        "numpy": _version("numpy"),
        "cuda": torch.version.cuda,
        "driver": _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "pirl_plugin": __version__,
    }
    found["gpu_memory_gb"] = found["compute_capability"] = None
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found["gpu_memory_gb"] = round(properties.total_memory / 1e9, 1)
        found["compute_capability"] = f"{properties.major}.{properties.minor}"
    return found


def commit() -> str | None:
    """The clone's commit, ``+`` where files differ from it; None without git."""
    head = _output("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD")
    if head is None:
        return None
    changed = _output("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
    return f"{head}+" if changed else head


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _output(*command: str) -> str | None:
    """First line that a command prints; None where it cannot be run or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.splitlines()), "").strip()
