"""Kinds of command-line arguments: what cannot be used is refused in a sentence, before work."""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SEED = 2**32 - 1


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows the value that an option has by default, where its text does not and there is one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        nothing = action.default is None or action.default is False or action.default == []
        if nothing or "default" in (action.help or ""):
            return action.help
        if isinstance(action.default, (list, tuple)):
            return f"{action.help} (default: {' '.join(map(str, action.default))})"
        return super()._get_help_string(action)


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """A whole number in a range, both ends included.

    Example:
        >>> whole_number(1)("3")
        3
    """
    expected = f"a whole number of at least {least}"
    if most is not None:
        expected = f"a whole number from {least} to {most}"

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"{text}: expected {expected}")
        return value

    return parse


def positive_number(text: str) -> float:
    """A finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
    return value


def user_path(text: str) -> Path:
    """A path; shells leave ``~`` as it is after an equals sign.

    Example:
        >>> user_path("~/photos") == Path.home() / "photos"
        True
    """
    return Path(os.path.expanduser(text))


def output_folder(text: str) -> Path:
    """A folder that can be written to, or made; absolute. Nothing is made yet."""
    path = user_path(text).resolve()
    reason = why_not_writable(path)
    if reason is not None:
        raise argparse.ArgumentTypeError(f"{text}: expected a folder to write to, and {reason}")
    return path


def default_output(parser: argparse.ArgumentParser, folder: str) -> Path:
    """Where a command writes without ``--out``; refused as a given one is."""
    try:
        return output_folder(folder)
    except argparse.ArgumentTypeError as error:
        parser.error(f"argument --out: {error}")


def device(text: str) -> str:
    """A CPU, or a GPU that is here, as torch names them."""
    import torch

    try:
        found = torch.device(text)
    except RuntimeError:
        found = None
    gpus = torch.cuda.device_count()
    if found is None or found.type not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"{text}: expected cpu, cuda or cuda:N")
    if found.type == "cuda" and (found.index or 0) >= gpus:
        here = f"cuda:0 to cuda:{gpus - 1}" if gpus else "cpu alone"
        raise argparse.ArgumentTypeError(f"{text}: expected a device that is here, which is {here}")
    return text


def why_not_writable(path: Path) -> str | None:
    """What keeps a folder from being made or written to; None where nothing does."""
    path = path.absolute()
    existing = next(p for p in (path, *path.parents) if p.exists() or p.is_symlink())
    if not existing.exists():
        return f"'{existing}' is a link to '{os.readlink(existing)}', which is not there"
    if not existing.is_dir():
        return f"'{existing}' is a file"
    try:
        tempfile.TemporaryFile(dir=existing).close()  # os.access lets root write to /proc
    except OSError as error:
        return f"'{existing}' cannot be written to: {error.strerror}"
    return None
