"""The ``pirl-plugin`` commands: each has a name, a function and a summary."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import NoReturn

from pirl_plugin import __version__

# Command -> "package.module:function", which takes the argument list, and a summary.
COMMANDS: dict[str, tuple[str, str]] = {
    "train": (
        "pirl_plugin.vissl.run.train_command:main",
        "pre-train, or run a benchmark, with VISSL",
    ),
    "quickstart": ("pirl_plugin.quickstart.command:main", "pre-train, evaluate and report"),
    "knn": ("pirl_plugin.evaluation.knn_command:main", "k-nearest-neighbor classification"),
    "embed": (
        "pirl_plugin.evaluation.embed_command:main",
        "save features and predicted classes for any images",
    ),
    "linear": (
        "pirl_plugin.evaluation.linear_command:main",
        "classify images: fit a linear classifier on frozen features",
    ),
    "finetune": (
        "pirl_plugin.vissl.finetune:main",
        "train all layers and a classifier on labeled images",
    ),
    "export": (
        "pirl_plugin.checkpoints.export_command:main",
        "write weights for Detectron2, torchvision or timm",
    ),
    "prepare": ("pirl_plugin.images.prepare_command:main", "copy images for faster reading"),
    "configs": ("pirl_plugin.vissl.configs:main", "list configs and overlays, or print one"),
}


def main(command: Callable[[list[str]], int | None] | None = None) -> NoReturn:
    """Run a command with the arguments in ``sys.argv``; end any exception in one sentence.

    The scripts in ``extra_scripts/`` start this way too.

    Args:
        command: a function that takes the arguments and returns the exit status, or None for 0.
            Without it, the first argument names the command.

    Raises:
        SystemExit: always; with the exit status, or the sentence.
    """
    if os.name != "posix":
        sys.exit("pirl_plugin: this package needs Linux or macOS; on Windows, use WSL")
    from pirl_plugin.system.arguments import option_of
    from pirl_plugin.system.console import check_output, prepare_streams
    from pirl_plugin.system.failures import in_one_sentence
    from pirl_plugin.system.processes import sharing_import_path
    from pirl_plugin.system.watcher import watching

    if "OMP_WAIT_POLICY" not in os.environ:
        # OpenMP threads spin for microseconds before they sleep; docs/speed.md has the figures.
        os.environ.setdefault("GOMP_SPINCOUNT", "300")
    # Before and after the watcher listens, Python would print a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    prepare_streams()
    try:
        with sharing_import_path(), watching(), in_one_sentence(spell=option_of):
            # Otherwise torch imports it in C++, where an exception from a signal is lost.
            import numpy  # noqa: F401

            sys.exit((command or run)(sys.argv[1:]))
    except SystemExit as ended:  # also after --help
        shows_only_progress = "train" in sys.argv[1:2]
        if not (ended.code or shows_only_progress):
            with in_one_sentence():
                check_output()
        raise


def run(arguments: Sequence[str]) -> int:
    """Run one command and return the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        print(f"pirl-plugin {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"pirl-plugin: unknown command '{name}'\n{_usage()}", file=sys.stderr)
        return 2
    command: Callable[[list[str]], int | None] = resolve_name(COMMANDS[name][0])
    return command(rest) or 0


def _usage() -> str:
    lines = [f"  {name:<12} {sentence}" for name, (_, sentence) in COMMANDS.items()]
    hint = "pirl-plugin COMMAND --help shows a command's options; pirl-plugin --version"
    return "\n".join(["usage: pirl-plugin COMMAND …", *lines, hint])
