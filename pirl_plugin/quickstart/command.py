"""``pirl-plugin quickstart``: options, and required packages."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from pirl_plugin.system.arguments import WholeNumber, command_parser, output_folder, user_path
from pirl_plugin.system.failures import MissingPackage


def main(arguments: list[str]) -> None:
    """Run ``pirl-plugin quickstart``.

    Raises:
        SystemExit: the data are invalid, or a run failed.
    """
    options = parse(arguments)
    missing = [name for name in ("jinja2", "sklearn") if find_spec(name) is None]
    if missing:
        raise MissingPackage(
            f"not installed: {', '.join(missing)}; pip install 'pirl-plugin[report]'"
        )
    from pirl_plugin.quickstart.run import run_quickstart
    from pirl_plugin.system.files import locked
    from pirl_plugin.system.watcher import resumable

    with locked(options.out, "--out"), resumable():
        run_quickstart(options.data, options.out, options.seed, options.epochs, options.method)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the quickstart's options. This runs before installation, without other packages.

    Raises:
        SystemExit: the options are invalid, or ask for help.
    """
    parser = command_parser(
        "quickstart",
        "Pre-train a small network with PIRL or NPID, evaluate it, and write a report.",
        "--data photos --out runs/photos",
    )
    add = parser.add_argument
    add("--data", type=user_path, help="folder with train/CLASS/* and val/CLASS/*, "
        "with CLASS/*, or with images (default: generated sample images)")  # fmt: skip
    add(
        "--out",
        type=output_folder,
        default="runs/quickstart",
        help="folder for the results (default: %(default)s)",
    )
    add("--method", choices=("jigsaw", "rotation", "npid"), help="PIRL with jigsaw or rotation, "
        "or NPID (default: jigsaw; with --data, npid, often ahead in equal time)")  # fmt: skip
    add("--seed", type=WholeNumber(0), default=0, help="random seed (default: %(default)s)")
    add("--epochs", type=WholeNumber(1), help="pre-training epochs (default: 16 for sample "
        "images; for yours, enough for about ten minutes)")  # fmt: skip
    options = parser.parse_args(arguments)
    if options.method is None:
        options.method = "jigsaw" if options.data is None else "npid"
    if options.data is not None:
        if not options.data.is_dir():  # quickstart.sh asks before the installation
            parser.error(f"--data = {options.data}: expected an existing folder with images")
        options.data = options.data.resolve()
    return options
