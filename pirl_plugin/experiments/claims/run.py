"""The paper's comparisons and sweeps at small scale, with a verdict on each claim."""

from __future__ import annotations

import fcntl
import shlex
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

from pirl_plugin.experiments.claims.comparison import new_setting
from pirl_plugin.experiments.claims.cost import timed
from pirl_plugin.experiments.claims.invariance import (
    add_missing_invariance,
    first_line,
    lacks_invariance,
)
from pirl_plugin.experiments.claims.plan import Job, job_of, plan
from pirl_plugin.experiments.claims.progress import Progress
from pirl_plugin.experiments.claims.provenance import refuse_other_recipes
from pirl_plugin.experiments.claims.record import Record
from pirl_plugin.experiments.claims.report import write_report
from pirl_plugin.experiments.claims.rows import Rows
from pirl_plugin.experiments.claims.scales import SCALES
from pirl_plugin.experiments.claims.timing import time_methods
from pirl_plugin.experiments.claims.verdicts import verdicts
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
    scale = SCALES[options.scale]
    epochs = max(1, round((options.images_seen or scale.images_seen) / data.num_train))
    step = max(1, epochs // 4)
    setting = new_setting(options.scale, data, epochs, step, options.threads)
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
    if options.report_only and not (options.resume or (options.out / "claims.json").is_file()):
        raise SystemExit(
            f"pirl_plugin: --out = {options.out}: expected a claims.json to report on; name the "
            f"folder of a comparison, or a file with --resume"
        )
    if options.dry_run:
        if options.resume is not None:
            _record(options, setting, workspace, jobs)
        print("\n".join(job.title for job in jobs))
        return
    workspace.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(
                f"pirl_plugin: --out = {options.out}: expected a folder that no other process "
                f"works in; wait for it, or give another"
            ) from None
        record = _record(options, setting, workspace, jobs)
        failed: list[str] = []
        if options.report_only:
            others = _write(record)
        elif options.time:
            record.cost = time_methods(options.methods, workspace, setting, options.time)
            others = _write(record)
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
    record = Record(files[0], setting, adds=not options.report_only)
    if options.resume is not None:
        files.append(options.resume)
        record.take(options.resume)
    if options.again:
        again = record.drop([job for job in jobs if job.method in options.again])
        print(f"Made again, but for what their folders hold: {_titles(again)}", flush=True)
    if len(files) > 1 or not options.report_only:
        refuse_other_recipes(record.rows, workspace, [file for file in files if file.is_file()])
    return record


def _titles(jobs: Sequence[Job]) -> str:
    return "; ".join(job.title for job in jobs) or "none, since none is finished"


def _run(
    jobs: Sequence[Job], record: Record, workspace: Workspace, side_by_side: int
) -> tuple[list[str], list[str]]:
    """Make what is not recorded yet.

    Returns:
        A line for each job that failed, and for what failed beside the jobs.
    """
    known = {job_of(row) for row in record.rows}
    left = [job for job in jobs if job not in known]
    progress = Progress(left, record.rows, workspace.data.num_train, side_by_side, workspace.step)
    print(f"{len(jobs)} models, {len(jobs) - len(left)} of them finished", flush=True)
    others = add_missing_invariance(record.rows, workspace)
    others += _write(record)
    failed = []
    with closing(finished_rows(left, workspace, side_by_side, progress.announce)) as rows:
        for job, result in rows:
            if isinstance(result, str):
                failed.append(
                    f"{job.title}: {result.splitlines()[0].removeprefix('pirl_plugin: ')}"
                )
                print(result, file=sys.stderr, flush=True)
            else:
                result["finished"] = time.strftime("%Y-%m-%d")
                record.add(result)
                if lacks_invariance(result):
                    others.append(f"{job.title}: no invariance")
            progress.ended(job, result if isinstance(result, dict) else None)
            others += _write(record)
    return failed, others


def _write(record: Record) -> list[str]:
    """``claims.json``, the tables and the figures, of what is there.

    Returns:
        A line for what failed once the runs were written.
    """
    record.write()
    try:
        claims = verdicts(Rows(timed(record.rows, record.cost), record.setting))
        record.write(claims)
        write_report(record.file.parent, record.setting, record.rows, claims, record.cost)
    except Exception as error:
        said = f"verdicts, tables or figures: {first_line(error)}"
        print(said, file=sys.stderr, flush=True)
        return [said]
    return []


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
