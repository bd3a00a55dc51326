"""Who holds a lock: a process, described so that others can name it and see whether it lives."""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from dataclasses import dataclass

from pirl_plugin.utils.processes import machine_id, process_birth


@dataclass(frozen=True)
class Holder:
    """Who holds a folder.

    Attributes:
        run: identity of the run; nodes of one run and requeued jobs share it.
        attempt: how often a cluster's scheduler has requeued the run.
        host: name of the machine, for people.
        pid: of the process.
        started: UTC, for people.
        machine: where ``pid`` means something: boot and process namespace.
        birth: start time of the process as the kernel counts it, or ``""``; pids are reused.
        token: of this very claim.
    """

    run: str
    attempt: int
    host: str
    pid: int
    started: str
    machine: str
    birth: str
    token: str

    def __str__(self) -> str:
        return f"host {self.host}, process {self.pid}, started {self.started}"


def this_process(run: str | None, attempt: int) -> Holder:
    """A claim of this process, with a token of its own.

    Args:
        run: identity of the run; None for one that shares nothing.
        attempt: how often the run was requeued.
    """
    token = uuid.uuid4().hex
    return Holder(
        run=run or token,
        attempt=attempt,
        host=socket.gethostname(),
        pid=os.getpid(),
        started=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        machine=machine_id(),
        birth=process_birth(os.getpid()),
        token=token,
    )


def parse_holder(content: str) -> Holder | None:
    """The holder that a lock file names; None for one that is empty or damaged."""
    try:
        return Holder(**json.loads(content))
    except (ValueError, TypeError):
        return None
