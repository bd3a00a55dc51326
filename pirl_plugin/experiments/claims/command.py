"""``pirl-plugin claims``: the paper's comparisons and sweeps at small scale, with verdicts."""

from __future__ import annotations

import argparse
import fcntl
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pirl_plugin.experiments.claims.invariance import add_invariance
from pirl_plugin.experiments.claims.methods import METHODS
from pirl_plugin.experiments.claims.model import Settings
from pirl_plugin.experiments.claims.plan import SWEEP_VALUES, Job, job_of, plan
from pirl_plugin.experiments.claims.progress import Progress
from pirl_plugin.experiments.claims.record import Record, new_setting
from pirl_plugin.experiments.claims.report import write_report
from pirl_plugin.experiments.claims.rows import Rows
from pirl_plugin.experiments.claims.scales import SCALES
from pirl_plugin.experiments.claims.verdicts import verdicts
from pirl_plugin.experiments.claims.workers import finished_rows
from pirl_plugin.experiments.quickstart_data import find_data
from pirl_plugin.utils.requirements import require_host

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: list[str]) -> None:
    """Run the command.

    Raises:
        SystemExit: an argument or data that cannot be used; or at the end, if runs failed.
    """
    options = _parse(arguments)
    require_host()
    data = find_data(options.data)
    if data.val is None:
        raise SystemExit(
            f"pirl_plugin: --data = {options.data}: expected train/CLASS/* and val/CLASS/* with "
            f"two classes or more, and found {data.num_classes} in {data.train}; give a labelled "
            f"folder"
        )
    scale = SCALES[options.scale]
    epochs = max(1, round((options.images_seen or scale.images_seen) / data.num_train))
    step = max(1, epochs // 4)
    setting = new_setting(options.scale, data, epochs, step, options.threads)
    setting["command"] = _without_paths(arguments)
    settings = Settings(scale, data, options.out / "runs", step, options.threads)
    jobs = plan(
        options.methods,
        options.sweeps,
        options.seeds,
        min(options.sweep_seeds, options.seeds),
        epochs,
        data.num_train,
        scale.negatives,
    )
    if options.dry_run:
        print("\n".join(job.title for job in jobs))
        return
    settings.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(
                f"pirl_plugin: --out = {options.out}: expected a folder that no other process "
                f"works in; wait for it, or give another"
            ) from None
        record = Record(options.out / "claims.json", setting)
        if options.resume is not None:
            record.take(options.resume)
        if options.report_only:
            _write(record, settings)
            return
        failures = _run(jobs, record, settings, options.jobs)
    if failures:
        raise SystemExit(
            f"pirl_plugin: {len(failures)} of {len(jobs)} models failed; the same command starts "
            "them again:\n  " + "\n  ".join(failures)
        )


def _run(jobs: Sequence[Job], record: Record, settings: Settings, side_by_side: int) -> list[str]:
    """Make what is not recorded yet; returns a line for each job that failed."""
    known = {job_of(row) for row in record.rows}
    left = [job for job in jobs if job not in known]
    progress = Progress(left, record.rows, settings.data.num_train, side_by_side)
    print(f"{len(jobs)} models, {len(jobs) - len(left)} of them finished", flush=True)
    _write(record, settings)
    failures = []
    for job, result in finished_rows(left, settings, side_by_side, progress.announce):
        if isinstance(result, str):
            failures.append(f"{job.title}: {result.splitlines()[0].removeprefix('pirl_plugin: ')}")
            print(result, file=sys.stderr, flush=True)
        else:
            result["finished"] = time.strftime("%Y-%m-%d")
            result["hardware"] = record.setting["hardware"]
            record.add(result)
        progress.ended(job, result if isinstance(result, dict) else None)
        _write(record, settings)
    return failures


def _write(record: Record, settings: Settings) -> None:
    """``claims.json``, the tables and the figures, of what is there."""
    add_invariance(record, settings)
    rows = Rows(record.rows, record.setting)
    claims = verdicts(rows)
    record.write(claims)
    write_report(record.file.parent, record.setting, record.rows, claims)


def _without_paths(arguments: Sequence[str]) -> str:
    """The command as anybody could type it: folders are placeholders."""
    words = iter([word for word in arguments if word != "--report-only"])
    kept = ["pirl-plugin", "claims"]
    for word in words:
        name, equals, _ = word.partition("=")
        if name in ("--data", "--out", "--resume") and not equals:
            next(words, None)
        if name in ("--data", "--out"):
            kept += [name, name.removeprefix("--").upper()]
        elif name != "--resume":
            kept.append(word)
    return shlex.join(kept)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pirl-plugin claims",
        description="Pre-trains every method of the comparison with one budget, measures each with "
        "the linear benchmark of every layer and a kNN at four points of training, then sweeps λ, "
        "|T| and N, and says of each of the paper's claims whether it held. What is in "
        "OUT/claims.json is not run again, with or without its folders: the same command goes on.",
    )
    parser.add_argument("--data", type=Path, required=True, help="train/<class>/*, val/<class>/*")
    parser.add_argument("--out", type=Path, required=True, help="claims.json, figures, runs")
    parser.add_argument("--scale", choices=list(SCALES), default="quick",
                        help="; ".join(f"{k}: {v.about}" for k, v in SCALES.items()))  # fmt: skip
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS),
                        metavar="M", help=f"of {', '.join(METHODS)} (default: all)")  # fmt: skip
    parser.add_argument("--sweeps", nargs="*", choices=list(SWEEP_VALUES),
                        default=list(SWEEP_VALUES), metavar="S",
                        help=f"of {', '.join(SWEEP_VALUES)}; default: all")  # fmt: skip
    parser.add_argument("--seeds", type=_positive, default=3, help="of the comparison (3)")
    parser.add_argument("--sweep-seeds", type=_positive, default=2, help="of the sweeps (2)")
    parser.add_argument("--images-seen", type=_positive, metavar="M",
                        help="budget of a model (default: 240,000 quick, 2,000,000 gpu); a "
                        "sweep's models take half")  # fmt: skip
    parser.add_argument("--jobs", type=_positive, help="models at a time (default: one a GPU)")
    parser.add_argument("--threads", type=_positive, default=1, help="of a run (1)")
    parser.add_argument("--resume", type=Path, metavar="CLAIMS_JSON",
                        help="also take finished runs from here")  # fmt: skip
    parser.add_argument("--report-only", action="store_true",
                        help="write verdicts, tables and figures of what is finished")  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="print the models, run nothing")
    options = parser.parse_args(arguments)
    options.data, options.out = options.data.resolve(), options.out.resolve()
    if options.resume is not None and not options.resume.is_file():
        parser.error(f"--resume = {options.resume}: expected a claims.json; there is no such file")
    if options.jobs is None:
        options.jobs = _devices() if options.scale == "gpu" else 1
    return options


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number of at least 1")
    return value


def _devices() -> int:
    import torch

    return max(1, torch.cuda.device_count())
