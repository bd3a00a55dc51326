"""``pirl-plugin claims``: the paper's comparisons and sweeps at small scale, with verdicts."""

from __future__ import annotations

import argparse

from pirl_plugin.experiments.claims.methods import DEFAULT_METHODS, METHODS
from pirl_plugin.experiments.claims.plan import SWEEP_VALUES
from pirl_plugin.experiments.claims.scales import RECIPES, SCALES
from pirl_plugin.utils.arguments import HelpFormatter, output_folder, user_path, whole_number
from pirl_plugin.utils.processes import usable_cores
from pirl_plugin.utils.requirements import require_host
from pirl_plugin.utils.subprocesses import ended_by_sigterm


def main(arguments: list[str]) -> None:
    """Run the command.

    Raises:
        SystemExit: an argument or data that cannot be used; or at the end, if runs failed.
    """
    options = _parse(arguments)
    require_host()
    from pirl_plugin.experiments.claims.report_only import report_claims
    from pirl_plugin.experiments.claims.run import run_claims

    with ended_by_sigterm():
        if options.report_only:
            report_claims(options)
        else:
            run_claims(options, arguments)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pirl-plugin claims",
        description="Pre-trains every method of the comparison with one budget, measures each with "
        "the linear benchmark of every layer and a kNN at four points of training, then sweeps λ, "
        "|T| and N, and says of each of the paper's claims whether it held. What is in "
        "OUT/claims.json is not run again, with or without its folders: the same command goes on.",
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--data", type=user_path, help="train/<class>/*, val/<class>/*; not needed "
                        "with --report-only")  # fmt: skip
    parser.add_argument(
        "--out", type=output_folder, required=True, help="claims.json, figures, runs"
    )
    parser.add_argument("--scale", choices=list(SCALES), default="quick",
                        help="; ".join(f"{k}: {v.about}" for k, v in SCALES.items()))  # fmt: skip
    parser.add_argument("--recipe", choices=list(RECIPES), default="paper",
                        help="of the loss; "
                        + "; ".join(f"{k}: {v.about}" for k, v in RECIPES.items()))  # fmt: skip
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=DEFAULT_METHODS,
                        metavar="M",
                        help=f"of {', '.join(METHODS)} (default: all but the last)")  # fmt: skip
    parser.add_argument("--sweeps", nargs="*", choices=list(SWEEP_VALUES),
                        metavar="S", help=f"of {', '.join(SWEEP_VALUES)} (default: all; none "
                        "with another --recipe)")  # fmt: skip
    parser.add_argument("--seeds", type=whole_number(1), default=3, help="of the comparison")
    parser.add_argument(
        "--sweep-seeds", type=whole_number(1), help="of the sweeps, at most --seeds (default: 2)"
    )
    parser.add_argument("--images-seen", type=whole_number(1), metavar="M",
                        help="budget of a model (default: 240,000 quick, 2,000,000 gpu); a "
                        "sweep's models take half")  # fmt: skip
    parser.add_argument(
        "--jobs", type=whole_number(1), help="models at a time (default: one a GPU)"
    )
    parser.add_argument("--threads", type=whole_number(1), default=1, help="of a run")
    parser.add_argument("--resume", type=user_path, metavar="CLAIMS_JSON",
                        help="also take finished runs from here")  # fmt: skip
    parser.add_argument("--time", type=whole_number(1), metavar="ROUNDS",
                        help="train nothing, but time short runs of the methods in turn, on a "
                        "machine that does nothing else; equal time is judged by it")  # fmt: skip
    parser.add_argument("--again", nargs="+", choices=list(METHODS), default=[], metavar="METHOD",
                        help="make finished models of these methods again, with their invariance; "
                        "what is in their folders counts")  # fmt: skip
    parser.add_argument("--report-only", action="store_true",
                        help="write verdicts, tables and figures of what is finished")  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="print the models, run nothing")
    options = parser.parse_args(arguments)
    if options.data is None and not options.report_only:
        parser.error("--data: expected a folder of images; name one")
    options.data = options.data and options.data.resolve()
    if options.resume is not None and not options.resume.is_file():
        parser.error(f"--resume = {options.resume}: expected a claims.json; there is no such file")
    if options.time and options.report_only:
        parser.error("--time: expected without --report-only, which runs nothing; leave out one")
    if options.again and options.report_only:
        parser.error("--again: expected without --report-only, which makes no model; leave out one")
    if options.sweeps is None:
        options.sweeps = list(SWEEP_VALUES) if options.recipe == "paper" else []
    elif options.sweeps and options.recipe != "paper":
        parser.error(
            f"--sweeps: expected none with --recipe {options.recipe}, since they vary the paper's; "
            f"leave out one"
        )
    nothing_runs = options.dry_run or options.report_only
    devices = _devices() if options.scale == "gpu" else None
    if devices == 0 and not nothing_runs:
        parser.error("--scale = gpu: expected a GPU, and none can be seen; give --scale quick")
    if options.jobs is None:
        options.jobs = devices or 1
    elif devices is not None and options.jobs > devices and not nothing_runs:
        parser.error(
            f"--jobs = {options.jobs}: expected at most one a GPU, and {devices} can be seen; give "
            f"fewer"
        )
    elif devices is None and options.jobs * options.threads > usable_cores() and not nothing_runs:
        parser.error(
            f"--jobs = {options.jobs} of {options.threads} thread(s): expected at most the "
            f"{usable_cores()} cores here, or each takes the time of others; give fewer"
        )
    if options.sweep_seeds is None:
        options.sweep_seeds = min(2, options.seeds)
    if options.sweep_seeds > options.seeds:
        parser.error(
            f"--sweep-seeds = {options.sweep_seeds}: expected at most --seeds, {options.seeds}; "
            f"give more of those"
        )
    return options


def _devices() -> int:
    import torch

    return torch.cuda.device_count()
