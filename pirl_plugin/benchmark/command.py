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


def _number(default: int, text: str, least: int = 1) -> dict[str, Any]:
    return {"type": whole_number(least), "default": default, "help": text}


def _numbers(default: list[int], text: str) -> dict[str, Any]:
    return {"type": whole_number(1), "nargs": "+", "default": default, "help": text}


_DATA = {"data": {"type": user_path, "help": "folder of images (default: drawn, 448 px)"}}
_DEVICE = {"device": {"type": device, "choices": ("cpu", "cuda"), "help": "default: a GPU if any"}}
_ROWS = {"rows": _number(1_281_167, "images in the bank", 2)}
_WORKERS = {"workers": _number(2, "of the loaders; 0: no such figures", 0)}
_DTYPES = ("float32", "bfloat16", "float16")
_PRECISIONS = ("float32", "tf32", "bfloat16")

# Name -> what it measures, and its options. Each is a module of this package with a function
# run(options), which prints the tables and returns what --json keeps.
BENCHMARKS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "pipeline": (
        "image file to batch: VISSL's transforms, lightly's, ours, and the decoding alone",
        {
            **_DATA,
            **_DEVICE,
            "images": _number(64, "images in a round", 2),
            "rounds": _number(7, "times that each pipeline is timed"),
            **_WORKERS,
        },
    ),
    "loss": (
        "the loss over the memory bank: time and memory",
        {
            **_DEVICE,
            **_ROWS,
            "batch": _numbers([32, 256], "images of a step"),
            "negatives": _numbers([4096, 32_000], "N"),
            "dtype": {"default": "float32", "choices": _DTYPES, "help": "of our bank's rows"},
            "rounds": _number(5, "times that each loss is timed"),
            "threads": _number(1, "of torch, on a CPU"),
        },
    ),
    "step": (
        "a training step on one device, without VISSL: images a second, the loss's share",
        {
            **_DATA,
            **_DEVICE,
            "images": _number(32, "images, used again and again", 2),
            "depth": {**_number(50, "of the ResNet"), "choices": (18, 50)},
            "precision": {"nargs": "+", "default": [*_PRECISIONS], "choices": _PRECISIONS},
            "batch": _numbers([32, 64, 128, 256], "images of a step"),
            "negatives": _number(32_000, "N"),
            **_ROWS,
            "steps": _number(10, "timed steps, after 3 more"),
        },
    ),
    "startup": (
        "imports, the loss, the first batch, a checkpoint",
        {
            **_DATA,
            **_ROWS,
            "model-mb": _number(194, "megabytes of a ResNet-50 and its optimiser's state"),
            "rounds": _number(3, "times that each is timed"),
            **_WORKERS,
        },
    ),
}


def main(arguments: list[str]) -> None:
    """Run the command."""
    import torch

    parser = argparse.ArgumentParser(
        prog="pirl-plugin benchmark",
        description="Run one benchmark, print its tables, and keep its figures.",
    )
    commands = parser.add_subparsers(dest="name", required=True)
    for name, (measures, settings) in BENCHMARKS.items():
        command = commands.add_parser(
            name, help=measures, description=measures, formatter_class=HelpFormatter
        )
        for option, about in settings.items():
            command.add_argument(f"--{option}", **about)
        command.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here")
    options = parser.parse_args(arguments)
    if options.name in ("pipeline", "startup"):
        require_host()
    gpu = torch.cuda.is_available()
    if "device" in options:
        options.device = options.device or ("cuda" if gpu else "cpu")
    if options.json:  # before the work: a file that cannot be written ends the command
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.touch()
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
