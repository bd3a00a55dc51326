"""What commands write into their output folder, and the check that it is theirs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pirl_plugin.files import atomic_write


def write_text(path: Path, text: str) -> None:
    """Write a text file, UTF-8, whole or not at all."""
    with atomic_write(path) as file:
        file.write(text.encode())


def write_json(path: Path, content: object) -> None:
    """Write JSON for people to read, whole or not at all."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def claim_folder(
    folder: Path, run: Mapping[str, object], file_name: str = "run.json", what: str = "run"
) -> dict[str, Any]:
    """Make a folder that of a run; the same run again goes on where it stopped.

    Args:
        folder: the output folder; it is made.
        run: what the run is: values that JSON can hold. Keys that the file has besides are kept.
        file_name: of the file in the folder that says so.
        what: what the message calls it.

    Returns:
        What the file held before, or ``run`` where there was none.

    Raises:
        ValueError: the folder holds another run, whose files would be taken for this one's.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = claim_folder(Path(folder), {"seed": 0})
        ...     claim_folder(Path(folder), {"seed": 0})
        {'seed': 0}
    """
    check_folder(folder, run, file_name, what)
    file = folder / file_name
    before = json.loads(file.read_text()) if file.is_file() else dict(run)
    write_json(file, before)
    return dict(before)


def check_folder(
    folder: Path, run: Mapping[str, object], file_name: str = "run.json", what: str = "run"
) -> None:
    """Refuse a folder that holds another run than ``run``; write nothing.

    Raises:
        ValueError: as :func:`claim_folder` does.
    """
    file = folder / file_name
    if file.is_file():
        check_claim(folder, read_claim(file), run, what)


def read_claim(file: Path) -> dict[str, Any]:
    """What a folder was claimed for; empty where the file is not one of ours."""
    try:
        claim = json.loads(file.read_text())
    except ValueError:
        claim = None
    return claim if isinstance(claim, dict) else {}


def check_claim(
    folder: Path, before: Mapping[str, object], run: Mapping[str, object], what: str
) -> None:
    """Refuse a folder that was claimed ``before`` for another run than ``run``.

    Raises:
        ValueError: as :func:`claim_folder` does.
    """
    run = json.loads(json.dumps(run))
    if different := [key for key in run if before.get(key) != run[key]]:
        held = ", ".join(f"{key} {before.get(key)} (now {run[key]})" for key in different)
        raise ValueError(
            f"--out = {folder}: expected an empty folder or one of the same {what}, and it holds "
            f"the {what} of {held}; give another folder with --out, or remove this one"
        )
