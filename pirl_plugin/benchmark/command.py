"""``pirl-plugin benchmark NAME``: run one benchmark, print its tables, keep its figures."""

from __future__ import annotations

import argparse
import importlib
import platform
from pathlib import Path
from typing import Any

from pirl_plugin.benchmark.arguments import ARGUMENTS
from pirl_plugin.utils.arguments import HelpFormatter, why_not_writable
from pirl_plugin.utils.outputs import write_json
from pirl_plugin.utils.processes import processor_name
from pirl_plugin.utils.requirements import require_host

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
        ARGUMENTS[name](command)
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
