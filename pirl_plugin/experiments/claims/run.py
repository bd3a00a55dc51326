"""The paper's comparisons and sweeps at small scale, with a verdict on each claim."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

from pirl_plugin.experiments.claims.comparison import new_setting
from pirl_plugin.experiments.claims.cost import merged, not_timed, refuse_other_machine
from pirl_plugin.experiments.claims.invariance import (
    add_missing_invariance,
    lacks_invariance,
)
from pirl_plugin.experiments.claims.outputs import locked, write_all
from pirl_plugin.experiments.claims.plan import Job, job_of, plan
from pirl_plugin.experiments.claims.progress import Progress
from pirl_plugin.experiments.claims.provenance import describe_other_precision, refuse_other_recipes
from pirl_plugin.experiments.claims.record import Record
from pirl_plugin.experiments.claims.scales import scale_with
from pirl_plugin.experiments.claims.timing import time_methods
from pirl_plugin.experiments.claims.workers import finished_rows
from pirl_plugin.experiments.claims.workspace import Workspace
from pirl_plugin.experiments.data import find_labelled_data

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pirl_plugin.experiments.claims.claims_file import Setting


def run_claims(options: argparse.Namespace, arguments: list[str]) -> None:
    """Make the models that are left, and write what is known of all.

    Args:
        options: as of the command.
        arguments: the command's words, for the record.

    Raises:
        SystemExit: data that cannot be used; or at the end, if runs failed.
    """
    data = find_labelled_data(options.data)
    scale = scale_with(options.scale, options.recipe)
    epochs = max(1, round((options.images_seen or scale.images_seen) / data.num_train))
    step = max(1, epochs // 4)
    setting = new_setting(options.scale, data, epochs, step, options.threads, options.recipe)
    setting["command"] = _without_paths(arguments)
    workspace = Workspace(scale, data, options.out / "runs", step, options.threads)
    jobs = plan(
        options.methods,
        options.sweeps,
        options.seeds,
        options.sweep_seeds,
        epochs,
        data.num_train,
        scale.negatives,
    )
    if options.dry_run:
        record = _record(options, setting, workspace, jobs)
        finished, left = _divided(jobs, record)
        print("\n".join(job.title + ": finished" * (job in finished) for job in jobs))
        progress = Progress(left, record.rows, data.num_train, options.jobs, step)
        print(f"{len(jobs)} models, {len(finished)} of them finished; {progress.time_left()} left")
        return
    workspace.out.mkdir(parents=True, exist_ok=True)
    failed: list[str] = []
    with locked(options.out):
        record = _record(options, setting, workspace, jobs)
        if options.time:
            refuse_other_machine(record.cost, options.methods, setting)
            new = time_methods(options.methods, workspace, setting, options.time)
            record.cost = merged(record.cost, new)
            if lacking := not_timed(record.rows, record.cost):
                print(f"Not timed, and so in no claim of equal time: {', '.join(lacking)}")
            others = write_all(record)
        else:
            failed, others = _run(jobs, record, workspace, options.jobs)
    said = []
    if failed:
        said.append(f"{len(failed)} of {len(jobs)} models failed; the same command starts them "
                    f"again:\n  " + "\n  ".join(failed))  # fmt: skip
    if others:
        said.append("beside the models failed what the same command tries again:\n  "
                    + "\n  ".join(dict.fromkeys(others)))  # fmt: skip
    if said:
        raise SystemExit("pirl_plugin: " + "\n".join(said))


def _record(
    options: argparse.Namespace, setting: Setting, workspace: Workspace, jobs: Sequence[Job]
) -> Record:
    """What is finished, here and in the file to resume from, less what is to be made again."""
    files = [options.out / "claims.json"]
    record = Record(files[0], setting)
    if options.resume is not None:
        files.append(options.resume)
        record.take(options.resume)
    if options.again:
        again = record.drop([job for job in jobs if job.method in options.again])
        print(f"Made again, but for what their folders hold: {_titles(again)}", flush=True)
    refuse_other_recipes(record.rows, workspace, [file for file in files if file.is_file()])
    if said := describe_other_precision(record.rows, workspace):
        print(said, file=sys.stderr, flush=True)
    return record


def _titles(jobs: Sequence[Job]) -> str:
    return "; ".join(job.title for job in jobs) or "none, since none is finished"


def _divided(jobs: Sequence[Job], record: Record) -> tuple[list[Job], list[Job]]:
    """The jobs that are recorded, and the others."""
    known = {job_of(row) for row in record.rows}
    return [job for job in jobs if job in known], [job for job in jobs if job not in known]


def _run(
    jobs: Sequence[Job], record: Record, workspace: Workspace, side_by_side: int
) -> tuple[list[str], list[str]]:
    """Make what is not recorded yet.

    Returns:
        A line for each job that failed, and for what failed beside the jobs.
    """
    finished, left = _divided(jobs, record)
    progress = Progress(left, record.rows, workspace.data.num_train, side_by_side, workspace.step)
    print(f"{len(jobs)} models, {len(finished)} of them finished", flush=True)
    others = add_missing_invariance(record.rows, workspace)
    others += write_all(record)
    failed = []
    with closing(finished_rows(left, workspace, side_by_side, progress.announce)) as rows:
        for job, result in rows:
            if isinstance(result, str):
                failed.append(f"{job.title}: {_reason(result, job.title)}")
                print(result, file=sys.stderr, flush=True)
            else:
                result["finished"] = time.strftime("%Y-%m-%d")
                record.add(result)
                if lacks_invariance(result):
                    others.append(f"{job.title}: no invariance")
            progress.ended(job, result if isinstance(result, dict) else None)
            others += write_all(record)
    return failed, others


def _reason(printed: str, title: str) -> str:
    """The last sentence of ours in what a failed model printed, which is of the run itself.

    Where the only one introduces the end of the log, as of a run that was killed, it is that end's
    last line that says more.
    """
    lines = [line for line in printed.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("pirl_plugin: ")]
    reason = (ours or lines)[-1 if ours else 0].removeprefix("pirl_plugin: ")
    reason = reason.removeprefix(f"{title} ")
    return f"{reason} {lines[-1].strip()}" if reason.endswith(":") and len(lines) > 1 else reason


def _without_paths(arguments: Sequence[str]) -> str:
    """The command as anybody could type it: folders are placeholders."""
    words = iter(arguments)
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
