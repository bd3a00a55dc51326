"""``pirl-plugin train --max-restarts N``: start a run again when it fails, where it left off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pirl_plugin.utils.console import put
from pirl_plugin.utils.interrupts import STOPPING, outlive_terminal
from pirl_plugin.vissl.launch.newest import newest_checkpoint
from pirl_plugin.vissl.launch.run import STARTED, WOULD_FAIL_AGAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

_ASKING = (signal.SIGINT, *STOPPING)  # a run to end, of which none is a failure
PAUSE_S = 5.0  # between two attempts: ports and nodes settle


def max_restarts(arguments: Sequence[str]) -> tuple[int, list[str]]:
    """Take ``--max-restarts N`` out of the arguments.

    Returns:
        N, 0 without the option, and the other arguments.

    Raises:
        SystemExit: N is missing or is not a whole number from 0.

    Example:
        >>> max_restarts(["--max-restarts", "3", "config=pretrain/pirl/jigsaw_8node"])
        (3, ['config=pretrain/pirl/jigsaw_8node'])
    """
    rest: list[str] = []
    number, given = "0", iter(arguments)
    for argument in given:
        if argument == "--max-restarts":
            number = next(given, "")
        elif argument.startswith("--max-restarts="):
            number = argument.partition("=")[2]
        else:
            rest.append(argument)
    if not number.isdecimal():
        raise SystemExit(
            f"pirl_plugin: --max-restarts {number}: expected a whole number from 0; give the "
            f"failures in a row to start again after, such as --max-restarts 3"
        )
    return int(number), rest


def supervise(
    command: Sequence[str],
    restarts: int,
    folder: Path,
    pause_s: float = PAUSE_S,
) -> int:
    """Run a command until it succeeds, or has failed too often in a row.

    A failure after which the folder holds a newer checkpoint than before is the first of a new
    row: a run of weeks may fail more often than ``restarts``, as long as it gets on. A run that was
    refused, was interrupted or would fail the same way again is not started again.

    Args:
        command: with its arguments.
        restarts: how many failures in a row are followed by another attempt.
        folder: of the run's checkpoints.
        pause_s: seconds before each further attempt.

    Returns:
        The exit status of the last attempt.
    """
    outlive_terminal()
    left = restarts
    while True:
        before = newest_checkpoint(folder)
        status, started = _attempt(command)
        if status == 0 or not started or status == WOULD_FAIL_AGAIN or _was_asked_to_end(status):
            return status
        if newest_checkpoint(folder) != before:
            left = restarts
        if left == 0:
            put(
                f"pirl_plugin: the run failed {restarts + 1} times in a row without a new "
                f"checkpoint in {folder}: not started again\n",
                sys.stderr,
            )
            return status
        left -= 1
        put(
            f"pirl_plugin: the run ended with exit status {status}: started again in {pause_s:g} s "
            f"({left} restarts left without a new checkpoint)\n",
            sys.stderr,
        )
        time.sleep(pause_s)


def _attempt(command: Sequence[str]) -> tuple[int, bool]:
    """Exit status of one attempt, and whether its checks let it begin."""
    with tempfile.TemporaryDirectory() as scratch:
        marker = Path(scratch, "started")
        process = subprocess.Popen(command, env={**os.environ, STARTED: str(marker)})
        # A terminal sends SIGINT to the run as well, which ignores the second.
        before = {
            number: signal.signal(number, lambda number, _: process.send_signal(number))
            for number in _ASKING
        }
        try:
            status = process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return (128 - status if status < 0 else status), marker.exists()


def _was_asked_to_end(status: int) -> bool:
    return status in [128 + number for number in _ASKING]
