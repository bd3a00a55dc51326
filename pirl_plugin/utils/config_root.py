"""Where the plugin's own files lie; standard library only."""

from __future__ import annotations

from pathlib import Path


def config_root() -> Path:
    """Folder that holds ``config/`` and ``detection/``: in the package, or beside it in a clone."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"
