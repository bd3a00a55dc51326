"""Options that several commands share, and types of arguments, for argparse."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

MAX_SEED = 2**32 - 1
LABELLED_DATA = (
    "folder with train and val (or validation, test): class folders, tars, Hugging Face data sets, "
    "or lists train.csv, val.csv; or a Hugging Face data set with two splits"
)
"""Help of ``--data`` for images with classes in two splits."""


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


def weights_file(text: str) -> Path:
    """Parse the path of a file of weights; a run's folder is a common mistake."""
    path = user_path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(
            f"{text}: expected a file, such as {Path(text, 'checkpoint.torch')}; this is a folder"
        )
    return path


def output_folder(text: str) -> Path:
    """Parse the absolute path of a folder that can be made and written to."""
    path = user_path(text).resolve()
    _check_writable(path, text)
    return path


def output_file(*endings: str) -> Callable[[str], Path]:
    """Return a type of paths of files that can be written.

    Args:
        endings: of their names, such as ``.npz``; none: any.
    """

    def file(text: str) -> Path:
        path = user_path(text)
        if path.is_dir():
            raise argparse.ArgumentTypeError(f"{text}: expected a file, but this is a folder")
        if endings and path.suffix not in endings:
            listed = ", ".join(endings)
            raise argparse.ArgumentTypeError(f"{text}: expected a name that ends in {listed}")
        if path.suffix == ".parquet" and find_spec("pyarrow") is None:
            raise argparse.ArgumentTypeError(
                f"{text}: a .parquet file needs pyarrow, which is not installed: pip install "
                f"pyarrow"
            )
        _check_writable(path.parent, text)
        return path

    return file


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


def command_parser(
    name: str, description: str, example: str, *parents: argparse.ArgumentParser
) -> argparse.ArgumentParser:
    """Return the parser of ``pirl-plugin NAME``.

    Args:
        name: of the command.
        description: its first sentences.
        example: options and arguments of an example.
        parents: parsers of options that it shares with other commands.
    """
    return argparse.ArgumentParser(
        prog=f"pirl-plugin {name}",
        description=f"{description}\nExample: pirl-plugin {name} {example}",
        formatter_class=HelpFormatter,
        parents=parents,
    )


def checkpoint_options(several: bool = False, published: bool = False) -> argparse.ArgumentParser:
    """Return the options that choose a trunk.

    Args:
        several: ``--checkpoint`` takes several files.
        published: ``--pretrained`` is an option too, instead of ``--checkpoint``.
    """
    parent = argparse.ArgumentParser(add_help=False)
    kinds = "a file of this plugin, VISSL, torch, torchvision, timm, MoCo, DINO …"
    nargs = "+" if several else None
    weights = parent.add_mutually_exclusive_group(required=True)
    weights.add_argument("--checkpoint", metavar="FILE", type=weights_file, nargs=nargs, help=kinds)
    if published:
        fetched = "instead of a file: the published weights of --timm NAME, which timm fetches"
        weights.add_argument("--pretrained", action="store_true", help=fetched)
    add = parent.add_argument
    add("--trunk", metavar="PREFIX", help="prefix of its tensors, if the file has several networks")
    add("--timm", metavar="NAME", help="timm's name of the network, if the file does not have it")
    add(
        "--timm-option",
        metavar="KEY=VALUE",
        type=key_and_value,
        action="append",
        default=[],
        help="an option of this network, such as img_size=384; may be repeated",
    )
    add("--trust-pickle", action="store_true", help="let the file run code if it is refused")
    return parent


def image_options(data: str = LABELLED_DATA) -> argparse.ArgumentParser:
    """Return the options of the images, and those that replace the checkpoint's kind of images.

    Args:
        data: help of ``--data``.
    """
    parent = argparse.ArgumentParser(add_help=False)
    add = parent.add_argument
    add("--data", metavar="DIR", type=user_path, required=True, help=data)
    images = "column of images or of their paths (default: image, img, photo, path, …)"
    add("--image-column", metavar="NAME", help=images)
    labels = "column of classes (default: label, labels, class or target)"
    add("--label-column", metavar="NAME", help=labels)
    channels = ("R", "G", "B")
    default = "(default: as in the checkpoint's training)"
    add("--size", type=whole_number(1, 4096), help=f"side of the images, pixels {default}")
    add("--mean", type=float, nargs=3, metavar=channels, help=f"mean of each channel {default}")
    deviation = f"its standard deviation {default}"
    add("--std", type=float, nargs=3, metavar=channels, help=deviation)
    return parent


def feature_options() -> argparse.ArgumentParser:
    """Return the options of computing features; ``layer`` is None if the user chooses none."""
    parent = argparse.ArgumentParser(add_help=False)
    add = parent.add_argument
    layers = (
        "layer whose features are taken: conv1, res2 to res5 of a ResNet, stage1 and others of a "
        "network of timm, each pooled to about 9,000 dimensions; or last, the pooled features "
        "(default: last)"
    )
    add("--layer", metavar="NAME", help=layers)
    add("--batch", type=whole_number(1), default=128, help="images at a time")
    add("--workers", type=whole_number(0), help="processes that decode (default: by cores)")
    add("--device", type=device, default="auto", help="cpu, cuda:N, or auto: a GPU if there is one")
    return parent


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
