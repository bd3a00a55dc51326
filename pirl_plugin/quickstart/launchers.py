"""Launch the runs of a sweep: here, one after another, or as SLURM jobs, side by side.

On SLURM the host submits each run through submitit's executor itself, requeues it after a
preemption, and resumes it. On this machine a run is a process that holds a lock. submitit's
``LocalExecutor`` would lose two things: it starts all jobs at once, so that they compete for the
same GPUs or cores, and a job that outlives its sweep is, to the next sweep, one with "no process
and no result" (``LocalJob.get_info``), which would start it a second time in the same folder.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from typing import TYPE_CHECKING, Protocol, TextIO

from pirl_plugin.files import atomic_write
from pirl_plugin.quickstart.host_run import host_command, run_host
from pirl_plugin.utils.hydra_overrides import quoted
from pirl_plugin.utils.processes import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pirl_plugin.quickstart.runs import Run


class Launcher(Protocol):
    """Where runs are made."""

    interval: float  # seconds between two looks at runs that are under way

    def command(self, run: Run) -> list[str]:
        """What a user would type to make the run."""

    def start(self, run: Run) -> None:
        """Start it; SystemExit where it fails before this returns."""

    def under_way(self, run: Run) -> bool:
        """Whether it was started, now or by an earlier sweep, and has not ended."""

    def log(self, run: Run) -> str:
        """Where to look when it failed."""


class Here:
    """A process of this machine for each run; ``start`` returns when it has ended.

    The process holds a lock on ``lock`` of the run's folder: it lives on where the sweep is killed,
    and another sweep of the same folder waits for it instead of starting the run twice.
    """

    interval = 5.0

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def command(self, run: Run) -> list[str]:
        """The host's launcher."""
        return _command(run)

    def start(self, run: Run) -> None:
        """Make the run; its progress on one line."""
        run.folder.mkdir(parents=True, exist_ok=True)
        with (run.folder / "lock").open("a") as file:
            if not _lock(file):
                raise SystemExit(
                    f"pirl_plugin: {run.title} is under way in another process: wait for it"
                )
            run_host(
                run.overrides,
                run.folder,
                run.title,
                self._threads,
                held=(file.fileno(),),
                tool=run.tool,
            )

    def under_way(self, run: Run) -> bool:
        """Whether a process that another sweep started is still at it."""
        if not (run.folder / "lock").is_file():
            return False
        with (run.folder / "lock").open("a") as file:
            return not _lock(file)

    def log(self, run: Run) -> str:
        """The whole log."""
        return str(run.folder / "console.log")


class Slurm:
    """The host's SLURM launcher: a job for each run, requeued by the host when it is preempted.

    The job's number is kept in ``slurm_job`` of the run's folder, so that another sweep of the
    same folder waits for it instead of starting the run twice.
    """

    interval = 30.0

    def __init__(self, partition: str) -> None:
        self._partition = partition

    def command(self, run: Run) -> list[str]:
        """The host's launcher, with a port of the run's own: several jobs may share a node."""
        return [
            *_command(run),
            "config.SLURM.USE_SLURM=true",
            f"config.SLURM.PARTITION={quoted(self._partition)}",
            f"config.SLURM.NAME={run.folder.parent.name}_{run.folder.name}",
            f"config.SLURM.LOG_FOLDER={quoted(run.folder / 'slurm')}",
            f"config.SLURM.PORT_ID={20_000 + zlib.crc32(os.fsencode(run.folder)) % 12_000}",
        ]

    def start(self, run: Run) -> None:
        """Submit the job."""
        run.folder.mkdir(parents=True, exist_ok=True)
        words = self.command(run)
        command = [sys.executable, "-m", "pirl_plugin", *words[1:]] if run.tool is None else words
        log = run.folder / "console.log"
        with log.open("w") as file:  # not a pipe, which a job on this machine would hold open
            done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False)
        printed = log.read_text()
        job = re.search(r"^SUBMITTED: (\S+)", printed, re.MULTILINE)
        if done.returncode != 0 or job is None:
            raise SystemExit(
                f"pirl_plugin: {run.title} was not submitted (exit status {done.returncode}); the "
                f"end of {log}:\n{printed[-2000:]}"
            )
        with atomic_write(run.folder / "slurm_job") as known:
            known.write(job[1].encode())
        print(f"{run.title}: SLURM job {job[1]}", flush=True)

    def under_way(self, run: Run) -> bool:
        """Whether the job has left no result, and SLURM knows it and not its end."""
        file, folder = run.folder / "slurm_job", run.folder / "slurm"
        if not file.is_file():
            return False
        job = file.read_text().strip()
        if not job:  # of a full disk: the job, if there is one, holds the lock of its folder
            return False
        if shutil.which("srun") is None:  # submitit then runs jobs here; the number is a process's
            return not (folder / f"{job}_0_result.pkl").exists() and is_alive(int(job))
        from submitit import SlurmJob

        return not SlurmJob(folder, job).done()

    def log(self, run: Run) -> str:
        """SLURM's logs and the host's own."""
        return f"{run.folder / 'slurm'} and {run.folder / 'log.txt'}"


def _command(run: Run) -> list[str]:
    """What makes a run on this machine."""
    start = ["pirl-plugin", "train"] if run.tool is None else host_command(run.tool)
    return [*start, *run.overrides, f"config.CHECKPOINT.DIR={quoted(run.folder)}"]


def _lock(file: TextIO) -> bool:
    """Take the lock of an open file, until it is closed here and in processes that inherit it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def make_all(
    chains: Mapping[str, Sequence[Run]], launcher: Launcher, on_end: Callable[[], object]
) -> dict[str, str]:
    """Make the runs of each chain in order, as many chains at a time as the launcher has under way.

    A run that fails, or whose folder cannot be written, ends its chain alone. Runs that are
    finished are not started.

    Args:
        chains: name → runs, each of which needs those before it.
        launcher: where they are made.
        on_end: called whenever a chain has ended.

    Returns:
        name → what failed, for the chains that did.
    """
    waiting = dict(chains)
    failures: dict[str, str] = {}
    started: set[Run] = set()
    while waiting:
        for name, runs in list(waiting.items()):
            try:
                if not _advance(runs, launcher, started):
                    continue
            except (SystemExit, OSError) as error:
                failures[name] = str(error)
                print(error, file=sys.stderr, flush=True)
            del waiting[name]
            on_end()
        if waiting:
            time.sleep(launcher.interval)
    return failures


def _advance(runs: Sequence[Run], launcher: Launcher, started: set[Run]) -> bool:
    """Go as far as possible without waiting; True where all runs are finished.

    Raises:
        SystemExit: a run ended and is not finished.
    """
    for run in runs:
        while not run.finished():
            if launcher.under_way(run):
                if run not in started:
                    print(f"{run.title}: under way already; waiting for it", flush=True)
                    started.add(run)
                return False
            if run.finished():  # it ended between the two looks
                break
            if run in started:
                raise SystemExit(
                    f"pirl_plugin: {run.title} ended unfinished: see {launcher.log(run)}"
                )
            started.add(run)
            launcher.start(run)
    return True
