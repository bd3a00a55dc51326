"""``pirl-plugin sweep``: the effect of λ, of the permutations or of the negatives (Sec. 4)."""

from __future__ import annotations

import argparse
import sys

from pirl_plugin.quickstart.sweep.values import SCALES, SWEEPS
from pirl_plugin.utils.arguments import HelpFormatter, default_output, output_folder, user_path
from pirl_plugin.utils.requirements import require_host
from pirl_plugin.utils.subprocesses import ended_by_sigterm


def main(arguments: list[str]) -> None:
    """Run the command.

    Raises:
        SystemExit: an argument or data that cannot be used; or at the end, if runs failed.
    """
    options = _parse(arguments)
    require_host()
    from pirl_plugin.quickstart.sweep.run import run_sweep

    with ended_by_sigterm():
        run_sweep(options)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pirl-plugin sweep",
        description="Pre-trains a model for each value, measures it with the linear benchmark, and "
        "writes a table and a figure. What is finished is not run again: the same command goes on "
        "after a stop, and waits for runs and SLURM jobs that outlived it.",
        formatter_class=HelpFormatter,
    )
    parser.add_argument("name", choices=list(SWEEPS), help="what is varied")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE",
                        help="Hydra overrides of every pre-training")  # fmt: skip
    parser.add_argument(
        "--data", type=user_path, required=True, help="train/<class>/*, val/<class>/*"
    )
    parser.add_argument("--out", type=output_folder, help="folder (default: runs/sweep_NAME)")
    parser.add_argument("--scale", choices=list(SCALES), default="paper",
                        help="; ".join(f"{k}: {v}" for k, v in SCALES.items()))  # fmt: skip
    parser.add_argument("--values", nargs="+", metavar="V", help="these values alone")
    parser.add_argument("--linear", metavar="KEY=VALUE", action="append", default=[],
                        help="an override of every linear benchmark; repeatable")  # fmt: skip
    parser.add_argument("--voc07", type=user_path, metavar="DIR",
                        help="VOCdevkit/VOC2007, for SVMs too: the measure of |T|")  # fmt: skip
    parser.add_argument("--slurm", metavar="PARTITION", help="submit each run as a SLURM job")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    options = parser.parse_intermixed_args(arguments)
    if options.values is not None:  # the option takes all words that follow
        options.overrides += [word for word in options.values if "=" in word]
        options.values = [word for word in options.values if "=" not in word]
    options.out = options.out or default_output(parser, f"runs/sweep_{options.name}")
    if options.slurm == "":
        parser.error("--slurm = '': expected the name of a partition; leave it out to run here")
    options.data = options.data.resolve()
    if options.slurm and options.voc07 is not None:
        parser.error(
            "--slurm with --voc07: expected one of them, as VISSL's SVMs run here, not as a job; "
            "add --voc07 to the same command without --slurm when the jobs have ended"
        )
    if options.voc07 is not None:
        options.voc07 = options.voc07.resolve()
        if not (options.voc07 / "ImageSets" / "Main").is_dir():
            parser.error(
                f"--voc07 = {options.voc07}: expected VOCdevkit/VOC2007, the folder that holds "
                f"ImageSets/Main and JPEGImages"
            )
    elif options.name == "permutations":
        print(
            "Without --voc07 DIR the linear top-1 alone is measured; the paper's figure for |T| "
            "shows VOC07 mAP.",
            file=sys.stderr,
        )
    return options
