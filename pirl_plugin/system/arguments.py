"""Options shared by several commands, and argument types, for argparse."""

from __future__ import annotations

import argparse
import difflib
import glob
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from pirl_plugin.system.files import LOCK

MAX_SEED = 2**32 - 1


@dataclass(frozen=True)
class WholeNumber:
    """An argument type: whole numbers from ``least`` to ``most``."""

    least: int
    most: int = MAX_SEED

    def __call__(self, text: str) -> int:
        """Parse a number."""
        if not text.isdecimal() or not self.least <= int(text) <= self.most:
            limits = f"of at least {self.least}"
            if self.most < MAX_SEED:
                limits = f"from {self.least} to {self.most}"
            raise argparse.ArgumentTypeError(f"{text}: expected a whole number {limits}")
        return int(text)


def user_path(text: str) -> Path:
    """Parse a path, and expand ``~``, which shells do not expand after an equals sign."""
    return Path(text).expanduser()


def input_file(text: str) -> Path:
    """Parse the path to an existing file; passing a run's folder is a common mistake."""
    path = user_path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(
            f"{text} is a folder; choose a file, such as {Path(text, 'checkpoint.torch')}"
        )
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{text} does not exist")
    return path


def input_path(text: str) -> Path:
    """Parse an existing path, or a pattern for existing files, such as ``data/train-*.parquet``."""
    path = user_path(text)
    if not path.exists() and not glob.glob(str(path)):
        raise argparse.ArgumentTypeError(f"{text} does not exist")
    return path


def output_folder(text: str) -> Path:
    """Parse the path to a folder, as an absolute path."""
    return user_path(text).resolve()


@dataclass(frozen=True)
class OutputFile:
    """An argument type: paths to writable files.

    Attributes:
        endings: allowed file name endings, such as ``.npz``; empty allows any, except for existing
            files in a run's folder.
    """

    endings: tuple[str, ...] = ()

    def __call__(self, text: str) -> Path:
        """Parse a path."""
        path = user_path(text)
        if self.endings and path.suffix not in self.endings:
            listed = ", ".join(self.endings)
            raise argparse.ArgumentTypeError(f"{text}: expected a name that ends in {listed}")
        folder = path.resolve().parent
        is_replaceable = self.endings or not path.is_file()
        if not is_replaceable and any((run / LOCK).exists() for run in (folder, *folder.parents)):
            raise argparse.ArgumentTypeError(
                f"{text} exists in a run's folder; choose another name, or delete it"
            )
        while not folder.exists():
            folder = folder.parent
        # Report this now, not after hours of computing.
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise argparse.ArgumentTypeError(
                f"{text}: {folder} is not a writable folder; choose another path"
            )
        return path


def device_name(text: str) -> str:
    """Parse a device's name; :func:`usable_device` imports torch, and checks the device."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"{text}: expected cpu, cuda, cuda:N, or auto")
    return text


def usable_device(name: str) -> str:
    """Return a device; for ``auto``, a GPU if there is one."""
    import torch

    if name != "auto":
        torch.zeros((), device=name)  # raises torch's own error before anything is computed
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def key_and_value(text: str) -> tuple[str, object]:
    """Parse ``KEY=VALUE``, where the value is YAML.

    Example:
        >>> key_and_value("img_size=48"), key_and_value("depths=[1, 2]")
        (('img_size', 48), ('depths', [1, 2]))
    """
    import yaml

    try:
        key, value = text.split("=", 1)
        return key, yaml.safe_load(value)
    except (ValueError, yaml.YAMLError):
        raise argparse.ArgumentTypeError(f"{text}: expected KEY=VALUE, in YAML") from None


Options = Mapping[str, Mapping[str, Any]]
"""A command's options: name → keyword arguments for ``add_argument``."""

_DEFAULT = "(default: the one used in pre-training)"

_FILES = "weights file from this plugin, VISSL, torch, torchvision, timm, MoCo, DINO …"
CHECKPOINT: Options = {"--checkpoint": dict(metavar="FILE", type=input_file, help=_FILES)}
"""A weights file."""

_FETCHED = "instead of a file, let timm download the published weights for --timm NAME"
WEIGHTS: Options = {**CHECKPOINT, "--pretrained": dict(action="store_true", help=_FETCHED)}
"""A weights file, or published weights."""

NETWORK: Options = {
    "--trunk": dict(
        metavar="PREFIX", help="tensor name prefix, if the file holds several networks"
    ),
    "--timm": dict(
        metavar="NAME", help="timm's name for the network, if the file does not record it"
    ),
    "--timm-option": dict(
        metavar="KEY=VALUE",
        type=key_and_value,
        action="append",
        default=[],
        help="option for this network, such as img_size=384; may be repeated",
    ),
}
"""Options for what a weights file may not record."""

_FOLDER = (
    "folder with train/CLASS/* and val/CLASS/* (or valid, validation, test); or a folder with "
    "CLASS/*, or a list with labels, of which a fifth is held out for testing"
)
_TRAIN = (
    "instead of --data, training images in any format: a folder, a list, tars, or a Hugging Face "
    "data set"
)
LABELED_DATA: Options = {
    "--data": dict(metavar="DIR", type=input_path, help=_FOLDER),
    "--train": dict(metavar="PATH", type=input_path, help=_TRAIN),
    "--val": dict(
        metavar="PATH", type=input_path, help="test images in any format; --train needs it"
    ),
    "--group-column": dict(
        metavar="NAME",
        help="column with groups, such as patients, that stay together when images are held out",
    ),
}
"""Labeled training and test images: one folder, or two paths."""

IMAGES: Options = {
    "--image-column": dict(
        metavar="NAME",
        help="column with images or paths (default: image, img, photo, path, …)",
    ),
    "--label-column": dict(
        metavar="NAME", help="column with classes (default: label, labels, class or target)"
    ),
    "--pattern": dict(
        metavar="REGEX",
        help="regular expression for paths below a folder; files that differ only in its named "
        "group (?P<channel>…) are one image, (?P<group>…) names images that belong together, and "
        "(?P<label>…) the class",
    ),
    "--rgb": dict(
        action="store_true",
        help="convert images with one or four channels, or 16 bits, to 8-bit RGB (default: keep "
        "channels and bits)",
    ),
    "--nodata": dict(
        type=float,
        metavar="VALUE",
        help="value of missing pixels, such as --nodata=-9999, besides NaN and the value that a "
        f"TIFF names {_DEFAULT}",
    ),
    "--size": dict(type=WholeNumber(1, 4096), help=f"image size in pixels {_DEFAULT}"),
    "--mean": dict(type=float, nargs="+", metavar="M", help=f"per-channel mean {_DEFAULT}"),
    "--std": dict(
        type=float, nargs="+", metavar="S", help=f"per-channel standard deviation {_DEFAULT}"
    ),
}
"""Table columns, and image settings that replace the checkpoint's."""

_LAYERS = (
    "layer to take features from: conv1 or res2 to res5 for a ResNet, stage1 and so on for a timm "
    "network, each pooled to about 9,000 dimensions; or last, the pooled features (default: last)"
)
LAYER: Options = {"--layer": dict(metavar="NAME", help=_LAYERS)}
"""Where to take features from; None if the user does not choose a layer."""

COMPUTING: Options = {
    "--batch": dict(type=WholeNumber(1), default=128, help="batch size (default: %(default)s)"),
    "--workers": dict(
        type=WholeNumber(0, 1024),
        help="worker processes that decode images (default: based on the number of cores)",
    ),
    "--device": dict(
        type=device_name,
        default="auto",
        help="cpu, cuda:N, or auto for a GPU if available (default: %(default)s)",
    ),
}
"""How to read images and compute."""


class Parser(argparse.ArgumentParser):
    """A parser for our commands and scripts, which refuses typos and repeated options.

    argparse would report the option that a typo stands for as missing, and would use the last value
    of an option in silence.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **settings
        )
        # For argparse, -3.4e38 would be an option.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments, by default those in ``sys.argv``."""
        self.check_options(sys.argv[1:] if args is None else args)
        return super().parse_args(args, namespace)

    def check_options(self, arguments: Sequence[str]) -> None:
        """Refuse unknown options, with a similar name, and repeated ones."""
        known = self._option_string_actions
        used: set[argparse.Action] = set()
        for word in takewhile("--".__ne__, arguments):
            name = word.partition("=")[0]
            if not re.fullmatch(r"--?[A-Za-z][\w-]*", name):  # a value, such as -0.5
                continue
            action = known.get(name) or known.get(name[:2])  # -k20 is -k 20
            if action is None:
                similar = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
                hint = "".join(f"; did you mean {option}?" for option in similar)
                self.error(f"unknown option {name}{hint}")
            if action in used and not isinstance(action, argparse._AppendAction):
                self.error(f"{action.option_strings[-1]} is given twice; keep one")
            used.add(action)


REPORT: Options = {
    "--report": dict(
        metavar="FILE.html",
        type=OutputFile((".html",)),
        help="write a page with pictures and results",
    ),
    "--show": dict(
        metavar="CHANNEL",
        nargs=3,
        help="channels that the page shows in red, green and blue, by number from 0 or by name "
        "(default: the first three, or the first in gray)",
    ),
}
"""A page, and the colors of its pictures."""

FEATURES: Options = {**NETWORK, **IMAGES, **COMPUTING, **REPORT}
"""What every command with frozen features accepts, besides weights and data."""


def command_parser(
    name: str, description: str, example: str, *tables: Options, weights: Options | None = None
) -> Parser:
    """Return the parser for ``pirl-plugin NAME``.

    Args:
        name: the command's name.
        description: its first sentences.
        example: example options and arguments.
        tables: options that it shares with other commands.
        weights: options of which the user must pass exactly one; None if there are none.
    """
    parser = Parser(
        prog=f"pirl-plugin {name}",
        usage="%(prog)s [options]",  # an error message shows it, and twenty lines would hide it
        description=f"{description}\nExample: pirl-plugin {name} {example}",
    )
    parser.set_defaults(command=name)
    if weights is not None:
        one_of = parser.add_mutually_exclusive_group(required=True)
        for option, settings in weights.items():
            one_of.add_argument(option, **settings)
    for table in tables:
        for option, settings in table.items():
            parser.add_argument(option, **settings)
    return parser


def option_of(argument: str) -> str:
    """Return the option for a library argument that a message names.

    Example:
        >>> option_of("label_column")
        '--label-column'
    """
    name = {"prefix": "trunk", "timm_options": "timm_option"}.get(argument, argument)
    return "--" + name.replace("_", "-")


def parse_labeled(parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """Parse the arguments of a command with the options in :data:`LABELED_DATA`."""
    options = parser.parse_args(arguments)
    paths = [options.data, options.train, options.val]
    if [path is not None for path in paths] not in ([True, False, False], [False, True, True]):
        parser.error("pass --data DIR, or both --train PATH and --val PATH")
    return options
