"""``pirl-plugin benchmark NAME``: run one benchmark, print its tables, keep its figures."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
from pathlib import Path
from typing import Any

from pirl_plugin.arguments import HelpFormatter, device, user_path, whole_number
from pirl_plugin.processes import processor_name
from pirl_plugin.settings import require_host

_IMAGENET = 1_281_167
_PRECISIONS = ["float32", "tf32", "bfloat16"]
_OPTIONS: dict[str, dict[str, Any]] = {
    "data": {"type": user_path, "help": "folder of images (default: drawn, 448 px)"},
    "device": {"type": device, "choices": ("cpu", "cuda"), "help": "default: a GPU if any"},
    "images": {"type": whole_number(2), "help": "images in a round"},
    "rounds": {"type": whole_number(1), "help": "times that each is timed"},
    "rows": {"type": whole_number(2), "help": "images in the bank"},
    "batch": {"type": whole_number(1), "help": "images of a step"},
    "negatives": {"type": whole_number(1), "help": "N"},
    "depth": {"type": int, "choices": (18, 50), "help": "of the ResNet"},
    "precision": {"choices": _PRECISIONS, "help": "of the matrix products"},
    "steps": {"type": whole_number(1), "help": "timed steps, after 3 more"},
}

# Name -> what it measures, and its options with their defaults. Each is a module of this package
# with a function run(options), which prints the tables and returns what --json keeps.
BENCHMARKS: dict[str, tuple[str, dict[str, Any]]] = {
    "pipeline": (
        "image file to batch: VISSL's transforms, ours, and the decoding alone",
        {"data": None, "device": None, "images": 64, "rounds": 7},
    ),
    "loss": (
        "the loss over the memory bank: time and memory",
        {"device": None, "rows": _IMAGENET, "batch": [32], "negatives": [32_000],
         "rounds": 5},
    ),
    "step": (
        "a training step on one device, without VISSL: images a second, the loss's share",
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
        description="Run one benchmark, print its tables, and keep its figures.",
    )
    commands = parser.add_subparsers(dest="name", required=True)
    for name, (measures, defaults) in BENCHMARKS.items():
        command = commands.add_parser(
            name, help=measures, description=measures, formatter_class=HelpFormatter
        )
        for option, default in defaults.items():
            count = "+" if isinstance(default, list) else None
            command.add_argument(f"--{option}", default=default, nargs=count, **_OPTIONS[option])
        command.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here")
    options = parser.parse_args(arguments)
    if options.name in ("pipeline", "startup"):
        require_host()
    gpu = torch.cuda.is_available()
    if "device" in options:
        options.device = options.device or ("cuda" if gpu else "cpu")
    if options.json:  # before the work: a folder that cannot be made ends the command
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
