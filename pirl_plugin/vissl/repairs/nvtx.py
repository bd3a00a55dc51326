"""The package ``nvtx``, which marks ranges for NVIDIA's profiler."""

from __future__ import annotations

import importlib.util
from typing import Any


def go_on_without_nvtx(module: Any) -> None:
    """Broke: ``is_nvtx_available`` of git main is always true, and each step imports ``nvtx``."""
    if hasattr(module, "is_nvtx_available") and importlib.util.find_spec("nvtx") is None:
        module.is_nvtx_available = lambda: False
