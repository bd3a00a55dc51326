"""Run commands in forks of the test process, where torch and VISSL are already imported.

A new process takes 9 s of CPU time to import them. Only tests of process start-up use new ones.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import runpy
import socket
import sys
import tempfile
import traceback
from multiprocessing import forkserver
from pathlib import Path
from subprocess import CompletedProcess
from typing import IO, TYPE_CHECKING

from pirl_plugin import cli
from tests.helpers import faults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FAULTS = Path(faults.__path__[0]) / "sitecustomize.py"


def fork_command(
    words: Sequence[str],
    environment: Mapping[str, str],
    stdout: IO[str] | None,
    stderr: IO[str] | None,
) -> int:
    """Start ``pirl-plugin WORDS`` in a fork, with faults from the environment; return its ID."""

    def main() -> None:
        os.environ.update(environment)
        runpy.run_path(str(FAULTS))
        sys.argv[1:] = words
        cli.main()

    return fork(main, stdout, stderr)


def fork(main: Callable[[], None], stdout: IO[str] | None, stderr: IO[str] | None) -> int:
    """Start a fork that ends as a program with this main function would; return the process ID."""
    pid = os.fork()
    if pid:
        return pid
    try:
        for number, stream in ((1, stdout), (2, stderr)):
            if stream is not None:
                os.dup2(stream.fileno(), number)
        sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]
        # Belongs to the test process: logging, child processes and the fork server.
        logging.root.handlers.clear()
        multiprocessing.process._children.clear()  # type: ignore[attr-defined]
        forkserver._forkserver.__init__()  # type: ignore[attr-defined, misc]
        status = _status_of(main)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
        status = 70
    os._exit(status)


def _status_of(main: Callable[[], None]) -> int:
    try:
        main()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
            return 1
        return int(ended.code or 0)
    return 0


def wait_for(pid: int) -> int:
    """Wait for a fork and return its exit status."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def train_in_forks(
    *overrides: str, ranks: int, environment: Mapping[str, str] | None = None
) -> CompletedProcess[str]:
    """Run ``pirl-plugin train`` as torchrun does: one process per rank, with its variables."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = {
        "PIRL_PLUGIN_CONSOLE": "log",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "LOCAL_WORLD_SIZE": str(ranks),
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        **(environment or {}),
    }
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        pids = [
            fork_command(
                ["train", *overrides],
                {**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                out,
                err,
            )
            for rank in range(ranks)
        ]
        statuses = [wait_for(pid) for pid in pids]
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    assert len(set(statuses)) == 1, (statuses, *texts)
    return CompletedProcess(["train"], statuses[0], *texts)
