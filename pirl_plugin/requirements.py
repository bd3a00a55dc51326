"""What to say where VISSL is not installed; standard library only."""

from __future__ import annotations

import importlib.util

NOT_INSTALLED = "VISSL is not installed: pip install --no-deps vissl==0.1.6"


def require_host() -> None:
    """For commands.

    Raises:
        SystemExit: VISSL is not installed.
    """
    if importlib.util.find_spec("vissl") is None:
        raise SystemExit(NOT_INSTALLED)
