"""The commands of ``pirl-plugin``: each a name, a function of its arguments, and a sentence."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Command -> ("package.module:function" of the list of arguments, what it does).
COMMANDS: dict[str, tuple[str, str]] = {
    "train": (
        "pirl_plugin.host.train:main",
        "the host's tools/run_distributed_engines.py, with the same arguments",
    ),
    "quickstart": (
        "pirl_plugin.evaluation.quickstart:main",
        "pre-train, evaluate and report on a folder of images, or on sample data",
    ),
    "benchmark": (
        "pirl_plugin.benchmark.command:main",
        "time a part of the plugin beside VISSL's own, in the same process",
    ),
    "sweep": (
        "pirl_plugin.evaluation.sweep:main",
        "pre-train and measure a model for each λ, |T| or N of the paper's Sec. 4",
    ),
    "export": (
        "pirl_plugin.export.command:main",
        "a checkpoint's trunk for Detectron2, torchvision or timm",
    ),
    "detection": (
        "pirl_plugin.detection.command:main",
        "Faster R-CNN on VOC or COCO from a checkpoint, through Detectron2",
    ),
    "knn": (
        "pirl_plugin.evaluation.knn_command:main",
        "top-1 of a k-nearest-neighbour classifier on a checkpoint's features",
    ),
    "results": (
        "pirl_plugin.evaluation.results:main",
        "finished runs as the paper's tables, measured beside published",
    ),
}


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 2
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"pirl-plugin: there is no command '{name}'\n{_usage()}")
        return 2
    where, _, what = COMMANDS[name][0].partition(":")
    command: Callable[[list[str]], int | None] = getattr(importlib.import_module(where), what)
    return command(rest) or 0


def _usage() -> str:
    lines = [f"  {name:<12} {sentence}" for name, (_, sentence) in COMMANDS.items()]
    return "\n".join(["usage: pirl-plugin COMMAND …", *lines])
