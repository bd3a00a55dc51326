"""Shared by the benchmarks: options, the printed table, and the ``--json`` file."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Sequence
from typing import Any

from pirl_plugin.system.arguments import Parser, WholeNumber, usable_device, user_path
from pirl_plugin.system.cores import processor_name

IMAGENET = 1_281_167  # images
Benchmark = Callable[[argparse.Namespace], dict[str, Any]]
"""A function that takes the options, prints a table, and returns the figures for ``--json``."""


def new_parser(script: str, measures: str) -> Parser:
    """Return a parser with the option common to all benchmarks."""
    parser = Parser(
        prog=script,
        description=f"Measure {measures}.\nExample: python extra_scripts/benchmark/{script}",
    )
    parser.add_argument("--json", type=user_path, metavar="FILE", help="file for the figures")
    return parser


def add_data(parser: Parser, images: int) -> None:
    """Add options for the image folder and the number of images."""
    help_text = "folder with images (default: generated, 448 px)"
    parser.add_argument("--data", type=user_path, help=help_text)
    help_text = "images per round (default: %(default)s)"
    parser.add_argument("--images", type=WholeNumber(2), default=images, help=help_text)


def add_device(parser: Parser) -> None:
    """Add the device option."""
    help_text = "cpu, cuda, or auto for a GPU if available (default: %(default)s)"
    parser.add_argument("--device", choices=("cpu", "cuda", "auto"), default="auto", help=help_text)


def add_rounds(parser: Parser, rounds: int) -> None:
    """Add the option for the number of rounds."""
    parser.add_argument(
        "--rounds",
        type=WholeNumber(1),
        default=rounds,
        help="number of rounds (default: %(default)s)",
    )


def add_rows(parser: Parser) -> None:
    """Add the option for the memory bank size."""
    help_text = "images in the bank (default: %(default)s)"
    parser.add_argument("--rows", type=WholeNumber(2), default=IMAGENET, help=help_text)


def report(run: Benchmark, options: argparse.Namespace) -> None:
    """Run a benchmark, which prints its table, and write the ``--json`` file.

    Args:
        run: the benchmark.
        options: the parsed options.
    """
    import torch

    gpu = torch.cuda.is_available()
    if "device" in options:
        options.device = usable_device(options.device)
    if options.json:  # before the measurement, so that a wrong path fails at once
        options.json.parent.mkdir(parents=True, exist_ok=True)
    machine = {
        "processor": processor_name(),
        "gpu": torch.cuda.get_device_name() if gpu else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    figures = {"machine": machine, **run(options)}
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """Print rows with the same keys as a table."""
    from tabulate import tabulate

    print(tabulate(rows, "keys", floatfmt=".3g"))
