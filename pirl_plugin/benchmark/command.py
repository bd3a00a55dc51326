"""``pirl-plugin benchmark NAME``: run one benchmark, print its tables, keep its figures."""

from __future__ import annotations

import argparse
import importlib
import platform
from pathlib import Path
from typing import Any

from pirl_plugin.arguments import (
    HelpFormatter,
    user_path,
    whole_number,
    why_not_writable,
)
from pirl_plugin.files import write_json
from pirl_plugin.processes import processor_name
from pirl_plugin.settings import require_host

PRECISIONS = ("float32", "tf32", "bfloat16")  # of a step
_DEVICE = "default: cuda where there is a GPU"

# Name -> what it measures. Each is a module of this package with a function run(options), which
# prints the tables and returns what --json keeps.
BENCHMARKS = {
    "pipeline": "image file to batch: VISSL's transforms, ours, and the lower bound",
    "loss": "the loss over the memory bank: time, memory, and bandwidth on a GPU",
    "step": "a training step on one device, without VISSL: images a second, the loss's share",
    "startup": "imports, the loss, the first batch, a checkpoint",
}
_WITHOUT_HOST = ("loss", "step")  # these run where VISSL is not installed, too


def main(arguments: list[str]) -> None:
    """Run the command.

    Raises:
        SystemExit: an argument, or the data it names, cannot be used.
    """
    parser = argparse.ArgumentParser(
        prog="pirl-plugin benchmark",
        description="Run one benchmark, print its tables, and keep its figures.",
    )
    commands = parser.add_subparsers(dest="name", required=True)
    for name, measures in BENCHMARKS.items():
        command = commands.add_parser(
            name, help=measures, description=measures, formatter_class=HelpFormatter
        )
        _ARGUMENTS[name](command)
        command.add_argument("--json", type=_file, metavar="FILE", help="keep the figures here")
    options = parser.parse_args(arguments)
    if options.name not in _WITHOUT_HOST:
        require_host()
    module = importlib.import_module(f"pirl_plugin.benchmark.{options.name}")
    figures = {"machine": machine(), **module.run(options)}
    if options.json:
        write_json(options.json, figures)


def _file(text: str) -> Path:
    path = Path(text)
    reason = f"'{path}' is a folder" if path.is_dir() else why_not_writable(path.absolute().parent)
    if reason is not None:
        raise argparse.ArgumentTypeError(f"{text}: expected a file to write, and {reason}")
    return path


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import torch

    return {
        "processor": processor_name(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _pipeline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=user_path, help="folder of images (default: drawn, 448 px)")
    parser.add_argument("--images", type=whole_number(2), default=64, help="images in a round")
    parser.add_argument(
        "--rounds", type=whole_number(1), default=7, help="times each pipeline is timed"
    )
    parser.add_argument(
        "--workers", type=whole_number(0), default=2, help="of the loaders; 0: no such table"
    )


def _loss(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cpu", "cuda"), help=_DEVICE)
    parser.add_argument(
        "--rows", type=whole_number(2), default=1_281_167, help="images in the bank"
    )
    parser.add_argument(
        "--batch", type=whole_number(1), nargs="+", default=[32, 256], help="images of a step"
    )
    parser.add_argument(
        "--negatives", type=whole_number(1), nargs="+", default=[4096, 32_000], help="N"
    )
    parser.add_argument(
        "--dtype",
        default="float32",
        choices=("float32", "bfloat16", "float16"),
        help="of our bank's rows",
    )
    parser.add_argument(
        "--rounds", type=whole_number(1), default=5, help="times each loss is timed"
    )
    parser.add_argument("--threads", type=whole_number(1), default=1, help="of torch, on a CPU")


def _step(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cpu", "cuda"), help=_DEVICE)
    parser.add_argument("--data", type=user_path, help="folder of images (default: drawn, 448 px)")
    parser.add_argument(
        "--images", type=whole_number(2), default=32, help="images, fed again and again"
    )
    parser.add_argument(
        "--depth", type=whole_number(1), default=50, choices=(18, 50), help="of the ResNet"
    )
    parser.add_argument(
        "--precision",
        nargs="+",
        default=list(PRECISIONS),
        choices=PRECISIONS,
        help="of the network",
    )
    parser.add_argument(
        "--batch",
        type=whole_number(1),
        nargs="+",
        default=[32, 64, 128, 256],
        help="images of a step",
    )
    parser.add_argument("--negatives", type=whole_number(1), default=32_000, help="N")
    parser.add_argument(
        "--rows", type=whole_number(2), default=1_281_167, help="images in the bank"
    )
    parser.add_argument(
        "--steps", type=whole_number(1), default=10, help="that are timed, after 3 more"
    )


def _startup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=user_path, help="folder of images (default: drawn, 448 px)")
    parser.add_argument(
        "--rows", type=whole_number(2), default=1_281_167, help="images in the bank"
    )
    parser.add_argument(
        "--model-mb", type=whole_number(1), default=194, help="a ResNet-50 and its optimiser"
    )
    parser.add_argument("--rounds", type=whole_number(1), default=3, help="times each is timed")
    parser.add_argument(
        "--workers", type=whole_number(0), default=2, help="of the loader; 0: no first batch"
    )


_ARGUMENTS = {"pipeline": _pipeline, "loss": _loss, "step": _step, "startup": _startup}
