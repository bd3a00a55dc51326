"""Logs of one JSON object a line, such as the host's ``stdout.json`` and ``metrics.json``."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects in a log, in their order; none where there is no such file.

    A kill or a full disk may have cut a line short, to which the next one was then joined: what
    does not parse is left out.
    """
    found = []
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else []:
        with suppress(ValueError):
            found.append(json.loads(line))
    return [entry for entry in found if isinstance(entry, dict)]
