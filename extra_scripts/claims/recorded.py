"""Rows in a JSON file: each is made once and saved immediately."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

from pirl_plugin.system.files import write_json


class RecordedRows:
    """Lists of rows, to which the same command adds whatever is missing.

    Args:
        file: the JSON file; its content replaces the given one if it exists.
        content: content of a new file, with an empty list for each kind of row.
    """

    def __init__(self, file: Path, content: dict[str, Any]) -> None:
        self.file = file
        recorded = json.loads(file.read_text("utf-8")) if file.is_file() else {}
        self.content = {**content, **recorded}
        file.parent.mkdir(parents=True, exist_ok=True)

    def has(self, rows: str, key: dict[str, Any]) -> bool:
        """Return whether a row exists."""
        return any(key.items() <= row.items() for row in self.content[rows])

    def add(self, rows: str, key: dict[str, Any], make: Callable[[], dict[str, Any]]) -> None:
        """Make a row unless it exists, save it, and print it."""
        if self.has(rows, key):
            return
        self.content[rows].append({**key, **make()})
        write_json(self.file, self.content)
        print(rows, json.dumps(self.content[rows][-1]), flush=True)

    def take_selection(self, file: Path) -> None:
        """Take the rows that chose the settings, from another file."""
        other = json.loads(file.read_text("utf-8"))
        self.content["selection_setting"] = other["setting"]
        self.content["selection"] = other["selection"]


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of Python and of the installed packages."""
    installed = {found.name for found in distributions()}
    found = {package: version(package) for package in packages if package in installed}
    return {"python": platform.python_version(), **found}
