"""``pirl-plugin quickstart``: pre-train, evaluate and report, in minutes on a CPU."""

from __future__ import annotations

import argparse

from pirl_plugin.utils.arguments import (
    MAX_SEED,
    HelpFormatter,
    output_folder,
    user_path,
    whole_number,
)
from pirl_plugin.utils.requirements import require_host
from pirl_plugin.utils.subprocesses import ended_by_sigterm


def main(arguments: list[str]) -> None:
    """Run the command.

    Raises:
        SystemExit: data that cannot be used, or a run that failed.
        Interrupted: SIGTERM; what was under way has saved and ended.
    """
    options = parse(arguments)
    require_host()
    from pirl_plugin.quickstart.run import run_quickstart

    with ended_by_sigterm():
        run_quickstart(options, arguments)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command's options; with nothing but the interpreter's own modules, before an install.

    Raises:
        SystemExit: they cannot be used, or ask for help.
    """
    parser = argparse.ArgumentParser(
        prog="pirl-plugin quickstart",
        description="Pre-train a small network with PIRL, measure it, and write a report.",
        formatter_class=HelpFormatter,
    )
    add = parser.add_argument
    add(
        "--data",
        type=user_path,
        help="folder with train/CLASS/* and val/CLASS/* (or validation/), or with images (default: "
        "drawn sample images)",
    )
    add("--out", type=output_folder, default="runs/quickstart", help="for runs and report")
    add("--seed", type=whole_number(0, MAX_SEED), default=0, help="of weights and draws")
    add("--epochs", type=whole_number(1), help="of PIRL (default: as many as see 120,000 images)")
    options = parser.parse_args(arguments)
    if options.data is not None:
        if not options.data.is_dir():
            parser.error(f"--data = {options.data}: expected a folder of images; there is none")
        options.data = options.data.resolve()
    return options
