"""Types of command-line arguments, for argparse."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

MAX_SEED = 2**32 - 1


def whole_number(least: int, most: int = MAX_SEED) -> Callable[[str], int]:
    """Return a type of whole numbers from ``least`` to ``most``."""

    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            limit = f"to {most}" if most < MAX_SEED else "on"
            raise argparse.ArgumentTypeError(
                f"{text}: expected a whole number from {least} {limit}"
            )
        return int(text)

    return number


def user_path(text: str) -> Path:
    """Parse a path, and expand ``~``: a shell does not expand it after an equals sign."""
    return Path(text).expanduser()


def output_folder(text: str) -> Path:
    """Parse the absolute path of a folder."""
    return user_path(text).resolve()


def device(text: str) -> str:
    """Parse cpu, cuda or cuda:N, and check that this GPU exists."""
    import torch

    kind, _, index = text.partition(":")
    gpus = torch.cuda.device_count()
    if text != "cpu" and (kind != "cuda" or int(index or 0) >= gpus):
        raise argparse.ArgumentTypeError(f"{text}: expected cpu, or one of {gpus} GPUs as cuda:N")
    return text


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Show defaults that are not None or a bool, and keep the line breaks of descriptions."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        hidden = action.default is None or isinstance(action.default, bool)
        return action.help if hidden else super()._get_help_string(action)
