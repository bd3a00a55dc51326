"""The commands of ``pirl-plugin``: each a name, a function of its arguments, and a sentence."""

from __future__ import annotations

import difflib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence

# Command -> "package.module:function" of the list of arguments, and what it does.
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("vissl.launch:main", "pre-train, or run a benchmark, with VISSL's engine"),
    "quickstart": ("quickstart.command:main", "pre-train, evaluate and report on any images"),
    "knn": ("evaluation.knn_command:main", "top-1 of k-nearest-neighbour classification"),
    "linear": ("vissl.linear:main", "top-1 of linear classifiers: VISSL's benchmark"),
    "invariance": (
        "evaluation.invariance_command:main",
        "distances of f(v_I) and g(v_It) (Fig. 4)",
    ),
    "export": ("checkpoints.export:main", "a trunk for Detectron2, torchvision, timm or VISSL"),
    "detection": ("detection.command:main", "Faster R-CNN from a checkpoint, through Detectron2"),
    "results": ("vissl.results:main", "finished runs as the paper's tables, beside its figures"),
    "sweep": ("quickstart.command:sweep", "pre-train for each λ, |T| or N of the paper's Sec. 4"),
    "prepare": ("images.prepare:main", "a smaller copy of images, or tar shards, read much faster"),
    "configs": ("vissl.list_configs:main", "this plugin's configs and overlays, with a line each"),
    "benchmark": ("benchmark.command:main", "time a part of the plugin beside VISSL's own"),
}


def main() -> None:
    """Run the command of ``sys.argv``, and end any exception in one sentence."""
    if os.name != "posix":
        sys.exit("pirl_plugin: Linux or macOS is needed; on Windows, use WSL")
    from pirl_plugin.failures import in_one_sentence
    from pirl_plugin.vissl.import_hook import finder

    finder.install()  # which a .pth file may not have done
    try:
        with in_one_sentence():
            status = run(sys.argv[1:])
            sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except KeyboardInterrupt:
        print("pirl_plugin: SIGINT: the command has ended", file=sys.stderr)
        status = 130  # as of a shell
    sys.exit(status)


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        print(_version())
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        instead = f"; the nearest is '{near[0]}'" if near else ""
        print(f"pirl-plugin: there is no command '{name}'{instead}\n{_usage()}", file=sys.stderr)
        return 2
    where, _, what = COMMANDS[name][0].partition(":")
    command: Callable[[list[str]], int | None] = getattr(
        importlib.import_module(f"pirl_plugin.{where}"), what
    )
    return command(rest) or 0


def _version() -> str:
    from importlib.metadata import version

    from pirl_plugin import __version__

    found = {name: importlib.util.find_spec(name) for name in ("vissl", "torch")}
    parts = [f"{name} {version(name) if spec else 'not installed'}" for name, spec in found.items()]
    return f"pirl-plugin {__version__} ({', '.join(parts)}, Python {sys.version.split()[0]})"


def _usage() -> str:
    lines = [f"  {name:<12} {sentence}" for name, (_, sentence) in COMMANDS.items()]
    more = "pirl-plugin COMMAND --help shows a command's options; pirl-plugin --version"
    return "\n".join(["usage: pirl-plugin COMMAND …", *lines, more])
