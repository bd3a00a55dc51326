"""Launching: the host's launchers with checks before them, and what its processes load first."""
