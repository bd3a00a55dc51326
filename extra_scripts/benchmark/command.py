"""``pirl-plugin benchmark NAME``: run one benchmark, print its tables, save its figures."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
from pathlib import Path
from typing import Any

from pirl_plugin.system.arguments import HelpFormatter, device, user_path, whole_number
from pirl_plugin.system.host_config import require_host
from pirl_plugin.system.processes import processor_name

_IMAGENET = 1_281_167
_PRECISIONS = ["float32", "tf32", "bfloat16"]
_OPTIONS: dict[str, dict[str, Any]] = {
    "data": {"type": user_path, "help": "folder of images (default: drawn, 448 px)"},
    "device": {"type": device, "choices": ("cpu", "cuda"), "help": "default: a GPU if any"},
    "images": {"type": whole_number(2), "help": "images in a round"},
    "rounds": {"type": whole_number(1), "help": "number of rounds"},
    "rows": {"type": whole_number(2), "help": "images in the bank"},
    "batch": {"type": whole_number(1), "help": "images in a step"},
    "negatives": {"type": whole_number(1), "help": "N"},
    "depth": {"type": int, "choices": (18, 50), "help": "depth of the ResNet"},
    "precision": {"choices": _PRECISIONS, "help": "type of the matrix products"},
    "steps": {"type": whole_number(1), "help": "timed steps, after 3 untimed steps"},
}

# Name -> what it measures, and its options with their defaults. Each name is a module of this
# package: its function run(options) prints the tables and returns the content of --json.
BENCHMARKS: dict[str, tuple[str, dict[str, Any]]] = {
    "pipeline": (
        "image file to batch: VISSL's transforms, ours, and only decoding",
        {"data": None, "device": None, "images": 64, "rounds": 7},
    ),
    "loss": (
        "the loss over the memory bank: time and memory",
        {"device": None, "rows": _IMAGENET, "batch": [32], "negatives": [32_000],
         "rounds": 5},
    ),
    "step": (
        "a training step on one device, without VISSL: images per second, share of the loss",
        {"data": None, "device": None, "images": 32, "depth": 50, "precision": _PRECISIONS,
         "batch": [32, 64, 128, 256], "negatives": 32_000, "rows": _IMAGENET, "steps": 10},
    ),
    "startup": (
        "imports, the loss, a checkpoint",
        {"rows": _IMAGENET, "rounds": 3},
    ),
}  # fmt: skip


def main(arguments: list[str]) -> None:
    """Run the command."""
    import torch

    parser = argparse.ArgumentParser(
        prog="pirl-plugin benchmark",
        description="Run a benchmark and print its tables. Example: pirl-plugin benchmark loss",
    )
    commands = parser.add_subparsers(dest="name", required=True)
    for name, (measures, defaults) in BENCHMARKS.items():
        command = commands.add_parser(
            name, help=measures, description=measures, formatter_class=HelpFormatter
        )
        for option, default in defaults.items():
            count = "+" if isinstance(default, list) else None
            command.add_argument(f"--{option}", default=default, nargs=count, **_OPTIONS[option])
        command.add_argument("--json", type=Path, metavar="FILE", help="file for the figures")
    options = parser.parse_args(arguments)
    if options.name in ("pipeline", "startup"):
        require_host()
    gpu = torch.cuda.is_available()
    if "device" in options:
        options.device = options.device or ("cuda" if gpu else "cpu")
    if options.json:  # before the measurement, so that a wrong path fails at once
        options.json.parent.mkdir(parents=True, exist_ok=True)
    machine = {
        "processor": processor_name(),
        "gpu": torch.cuda.get_device_name() if gpu else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    module = importlib.import_module(f"pirl_plugin.benchmark.{options.name}")
    figures = {"machine": machine, **module.run(options)}
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
