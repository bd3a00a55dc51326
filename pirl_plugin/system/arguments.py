"""Options that several commands share, and types of arguments, for argparse."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pirl_plugin.system.files import LOCK

MAX_SEED = 2**32 - 1


@dataclass(frozen=True)
class WholeNumber:
    """A type of whole numbers from ``least`` to ``most``."""

    least: int
    most: int = MAX_SEED

    def __call__(self, text: str) -> int:
        """Parse a number."""
        if not text.isdecimal() or not self.least <= int(text) <= self.most:
            limit = f"to {self.most}" if self.most < MAX_SEED else "on"
            raise argparse.ArgumentTypeError(
                f"{text}: expected a whole number from {self.least} {limit}"
            )
        return int(text)


def user_path(text: str) -> Path:
    """Parse a path, and expand ``~``: a shell does not expand it after an equals sign."""
    return Path(text).expanduser()


def weights_file(text: str) -> Path:
    """Parse the path of a file of weights; a run's folder is a common mistake."""
    path = user_path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(
            f"{text} is a folder; give a file, such as {Path(text, 'checkpoint.torch')}"
        )
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{text} does not exist")
    return path


def output_folder(text: str) -> Path:
    """Parse the absolute path of a folder that can be made and written to."""
    path = user_path(text).resolve()
    _check_writable(path, text)
    return path


@dataclass(frozen=True)
class OutputFile:
    """A type of paths of files that can be written.

    Attributes:
        endings: of their names, such as ``.npz``; none: any.
    """

    endings: tuple[str, ...] = ()

    def __call__(self, text: str) -> Path:
        """Parse a path."""
        path = user_path(text)
        if path.is_dir():
            raise argparse.ArgumentTypeError(f"{text}: expected a file, but this is a folder")
        if self.endings and path.suffix not in self.endings:
            listed = ", ".join(self.endings)
            raise argparse.ArgumentTypeError(f"{text}: expected a name that ends in {listed}")
        if path.suffix == ".parquet":
            try:
                import pyarrow.parquet  # noqa: F401
            except ImportError as error:
                raise argparse.ArgumentTypeError(
                    f"{text}: a .parquet file needs pyarrow, which cannot be imported ({error}); "
                    f"pip install pyarrow"
                ) from error
        _check_writable(path.parent, text)
        # Pages are made again, and a file of features is checked for what it holds.
        is_in_run = (path.parent / LOCK).exists()
        if is_in_run and path.exists() and path.suffix not in (".html", ".npz"):
            raise argparse.ArgumentTypeError(
                f"{text} exists, in the folder of a run; choose another name, or delete it"
            )
        return path


def _check_writable(folder: Path, text: str) -> None:
    """Raise an error of argparse if a folder is no folder, or cannot be made or written to."""
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(
            f"{text}: expected a path that can be written, but {folder} is "
            f"{'read-only' if folder.is_dir() else 'a file'}; name another"
        )


def positive_number(text: str) -> float:
    """Parse a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
    return number


def device(text: str) -> str:
    """Parse cpu, cuda, cuda:N or auto, and check that this GPU exists."""
    import torch

    gpus = torch.cuda.device_count()
    if text == "auto":
        return "cuda" if gpus else "cpu"
    match = re.fullmatch(r"cuda(?::([0-9]+))?", text)
    exists = match is not None and int(match[1] or 0) < gpus
    if text != "cpu" and not exists:
        raise argparse.ArgumentTypeError(f"{text}: expected cpu, or one of {gpus} GPUs as cuda:N")
    return text


def key_and_value(text: str) -> tuple[str, object]:
    """Parse ``KEY=VALUE``, with a value in YAML.

    Example:
        >>> key_and_value("img_size=48"), key_and_value("depths=[1, 2]")
        (('img_size', 48), ('depths', [1, 2]))
    """
    import yaml

    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text}: expected KEY=VALUE, such as img_size=384")
    return key, yaml.safe_load(value)


Options = Mapping[str, Mapping[str, Any]]
"""Options of a command: name → the keyword arguments of ``add_argument``."""

_DEFAULT = "(default: the one used in pre-training)"

_FILES = "a file of this plugin, VISSL, torch, torchvision, timm, MoCo, DINO …"
CHECKPOINT: Options = {"--checkpoint": dict(metavar="FILE", type=weights_file, help=_FILES)}
"""A file of weights."""

_FETCHED = "instead of a file: the published weights of --timm NAME, which timm fetches"
WEIGHTS: Options = {**CHECKPOINT, "--pretrained": dict(action="store_true", help=_FETCHED)}
"""A file of weights, or published weights."""

NETWORK: Options = {
    "--trunk": dict(
        metavar="PREFIX", help="prefix of its tensors, if the file has several networks"
    ),
    "--timm": dict(metavar="NAME", help="timm's name of the network, if the file does not have it"),
    "--timm-option": dict(
        metavar="KEY=VALUE",
        type=key_and_value,
        action="append",
        default=[],
        help="an option of this network, such as img_size=384; may be repeated",
    ),
    "--trust-pickle": dict(
        action="store_true",
        help="unpickle the file even if it can run code (only for files you trust)",
    ),
}
"""Options for what a weights file may not record."""

_FOLDER = (
    "folder with train/CLASS/* and val/CLASS/* (or valid, validation, test), or with CLASS/*, from "
    "which a fifth is held out for testing"
)
_TRAIN = "training images, of any kind: a folder, a list, tars, or a Hugging Face data set"
LABELED_DATA: Options = {
    "--data": dict(metavar="DIR", type=user_path, help=_FOLDER),
    "--train": dict(metavar="PATH", type=user_path, help=_TRAIN),
    "--val": dict(metavar="PATH", type=user_path, help="test images, of any kind"),
}
"""Labeled training and test images: one folder, or two paths."""

IMAGES: Options = {
    "--image-column": dict(
        metavar="NAME",
        help="column of images or of their paths (default: image, img, photo, path, …)",
    ),
    "--label-column": dict(
        metavar="NAME", help="column of classes (default: label, labels, class or target)"
    ),
    "--rgb": dict(
        action="store_true",
        help="convert images of one or four channels to RGB (default: they keep their channels)",
    ),
    "--size": dict(type=WholeNumber(1, 4096), help=f"image size in pixels {_DEFAULT}"),
    "--mean": dict(type=float, nargs="+", metavar="M", help=f"per-channel mean {_DEFAULT}"),
    "--std": dict(
        type=float, nargs="+", metavar="S", help=f"per-channel standard deviation {_DEFAULT}"
    ),
}
"""Columns of tables, and image settings that replace those of the checkpoint."""

_LAYERS = (
    "layer whose features are taken: conv1, res2 to res5 of a ResNet, stage1 and others of a "
    "network of timm, each pooled to about 9,000 dimensions; or last, the pooled features "
    "(default: last)"
)
FEATURES: Options = {
    "--layer": dict(metavar="NAME", help=_LAYERS),
    "--batch": dict(type=WholeNumber(1), default=128, help="batch size"),
    "--workers": dict(
        type=WholeNumber(0), help="worker processes that decode images (default: by cores)"
    ),
    "--device": dict(
        type=device, default="auto", help="cpu, cuda:N, or auto for a GPU if available"
    ),
}
"""How features are computed; ``layer`` is None if the user chooses none."""


def command_parser(
    name: str, description: str, example: str, *tables: Options, weights: Options | None = None
) -> argparse.ArgumentParser:
    """Return the parser of ``pirl-plugin NAME``.

    Args:
        name: of the command.
        description: its first sentences.
        example: options and arguments of an example.
        tables: options that it shares with other commands.
        weights: of these options, the user gives exactly one; None: there are none.
    """
    parser = argparse.ArgumentParser(
        prog=f"pirl-plugin {name}",
        description=f"{description}\nExample: pirl-plugin {name} {example}",
        formatter_class=HelpFormatter,
    )
    if weights is not None:
        one_of = parser.add_mutually_exclusive_group(required=True)
        for option, settings in weights.items():
            one_of.add_argument(option, **settings)
    for table in tables:
        for option, settings in table.items():
            parser.add_argument(option, **settings)
    return parser


def weights_name(options: argparse.Namespace) -> str:
    """Return the absolute path of ``--checkpoint``, or the name of published weights."""
    if options.checkpoint is None:
        return f"published weights of timm's {options.timm}"
    return str(options.checkpoint.resolve())


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Show defaults that are not None, a bool or empty; keep the line breaks of descriptions."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        hidden = action.default in (None, []) or isinstance(action.default, bool)
        return action.help if hidden else super()._get_help_string(action)
