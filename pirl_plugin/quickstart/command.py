"""The options of ``pirl-plugin quickstart`` and ``pirl-plugin sweep``."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from pirl_plugin.arguments import HelpFormatter, output_folder, user_path, whole_number
from pirl_plugin.failures import MissingPackage


def main(arguments: list[str]) -> None:
    """Run ``pirl-plugin quickstart``.

    Raises:
        SystemExit: the data cannot be used, or a run failed.
    """
    options = parse(arguments)
    missing = [name for name in ("jinja2", "matplotlib", "scipy") if find_spec(name) is None]
    if missing:
        raise MissingPackage(
            f"not installed: {', '.join(missing)}; pip install 'pirl-plugin[report]'"
        )
    from pirl_plugin.processes import ended_by_sigterm
    from pirl_plugin.quickstart.run import run_quickstart

    with ended_by_sigterm():
        run_quickstart(options.data, options.out, options.seed, options.epochs)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the quickstart's options. It runs before an installation, without other packages.

    Raises:
        SystemExit: the options cannot be used, or ask for help.
    """
    parser = argparse.ArgumentParser(
        prog="pirl-plugin quickstart",
        description="Pre-train a small network with PIRL, measure it, and write a report.\n"
        "Example: pirl-plugin quickstart --data photos --out runs/photos",
        formatter_class=HelpFormatter,
    )
    add = parser.add_argument
    add("--data", type=user_path, help="folder with train/CLASS/* and val/CLASS/*, or "
        "with images (default: drawn sample images)")  # fmt: skip
    add("--out", type=output_folder, default="runs/quickstart", help="folder for the results")
    add("--seed", type=whole_number(0), default=0, help="random seed")
    add("--epochs", type=whole_number(1), help="epochs of pre-training (default: 16 for sample "
        "images; 120,000 divided by the number of your images, at most 100)")  # fmt: skip
    options = parser.parse_args(arguments)
    if options.data is not None:
        if not options.data.is_dir():
            parser.error(f"--data = {options.data}: expected an existing folder of images")
        options.data = options.data.resolve()
    return options


def sweep(arguments: list[str]) -> None:
    """Run ``pirl-plugin sweep``.

    Raises:
        SystemExit: the options cannot be used, or a run failed.
    """
    from pirl_plugin.processes import ended_by_sigterm
    from pirl_plugin.quickstart.sweep import SWEEPS, run_sweep

    parser = argparse.ArgumentParser(
        prog="pirl-plugin sweep",
        description="Pre-train a model for each value, measure it with the linear benchmark, and "
        "write a table and a figure. The same command resumes after a stop.\nExample: "
        "pirl-plugin sweep lambda --data DIR --scale quick --values 0 0.5 1",
        formatter_class=HelpFormatter,
    )
    add = parser.add_argument
    add("name", choices=list(SWEEPS), help="the value to vary")
    add("overrides", nargs="*", metavar="KEY=VALUE", help="Hydra overrides of every pre-training")
    add("--data", type=user_path, required=True, help="folder of train/CLASS/*, val/CLASS/*")
    add("--voc", type=user_path, metavar="VOC2007",
        help="measure with SVMs on VOC07 (Fig. 7), not with linear classifiers")  # fmt: skip
    add("--out", type=output_folder, help="folder (default: runs/sweep_NAME)")
    add("--scale", choices=["paper", "quick"], default="paper",
        help="paper: ResNet-50, 400 epochs, 32 GPUs; quick: ResNet-10 on a CPU")  # fmt: skip
    add("--values", nargs="+", metavar="V", help="only these values (default: the paper's)")
    add("--linear", metavar="KEY=VALUE", action="append", default=[],
        help="an override of every benchmark; repeatable")  # fmt: skip
    options = parser.parse_intermixed_args(arguments)
    if options.values is not None:  # argparse gives this option all words after it
        options.overrides += [word for word in options.values if "=" in word]
        options.values = [float(word) for word in options.values if "=" not in word]
    options.out = options.out or output_folder(f"runs/sweep_{options.name}")
    options.data = options.data.resolve()
    if options.voc is not None:
        options.voc = options.voc.resolve()
    with ended_by_sigterm():
        run_sweep(options)
