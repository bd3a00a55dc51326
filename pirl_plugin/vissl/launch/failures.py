"""What ended a run, in one sentence; the traceback goes to a file, or is shown on request.

``PIRL_PLUGIN_TRACEBACK=1`` or ``HYDRA_FULL_ERROR=1`` in the environment shows tracebacks.
"""

from __future__ import annotations

import json
import os
import re
import traceback
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILURE_FILE = "failure.txt"
# What a rank says that lost another one, or waited for it in vain, rather than failed itself.
_PEER = re.compile(
    r"connection (was )?(closed|reset|refused)|timed out|timeout|broken pipe|gloo.*(error|failed)|"
    r"nccl.*(abort|remote|watchdog|unhandled)|socket.*(failed|closed)|recvValue failed|store.*wait",
    re.IGNORECASE,
)
_PORT_IN_USE = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)


class ConfigurationError(Exception):
    """A mistake in the configuration, raised in place of ``SystemExit`` on request."""


def traceback_wanted() -> bool:
    """Whether the environment asks for tracebacks."""
    names = ("PIRL_PLUGIN_TRACEBACK", "HYDRA_FULL_ERROR")
    return any(os.environ.get(name, "0") not in ("", "0") for name in names)


def refuse(sentence: str, cause: BaseException | None = None) -> NoReturn:
    """End the run before it starts, with one line and exit status 1.

    Raises:
        SystemExit: the sentence.
        ConfigurationError: the same where the environment asks for tracebacks.
    """
    line = "pirl_plugin: " + " ".join(sentence.split())
    if traceback_wanted():
        raise ConfigurationError(line) from cause
    raise SystemExit(line) from None


@contextmanager
def in_one_sentence() -> Iterator[None]:
    """End any exception in one line: the first paragraph of its message.

    Raises:
        SystemExit: as :func:`refuse`.
    """
    try:
        yield
    except Exception as error:
        said = str(error).strip().split("\n\n")[0]
        known = isinstance(error, (ValueError, OSError)) or type(error).__module__.startswith(
            ("hydra", "omegaconf")
        )
        refuse(said if known and said else f"{type(error).__name__}: {said}", error)


class RankError(Exception):
    """A rank's failure on its way to the launcher, as one line of JSON."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(json.dumps(asdict(failure)))
        self.failure = failure


@dataclass(frozen=True)
class Failure:
    """How one rank ended.

    Attributes:
        rank: of the run, from 0.
        sentence: what happened and what to do.
        traceback: for the file; may be empty.
        is_cause: False where the rank only lost its connection to another.
        unexpected: whether the sentence is an exception's, and the traceback says more.
        would_recur: whether the same command would fail the same way again.
    """

    rank: int
    sentence: str
    traceback: str = ""
    is_cause: bool = True
    unexpected: bool = False
    would_recur: bool = False


def describe(error: BaseException, rank: int, timeout_minutes: float) -> Failure:
    """Say what an exception means for the run.

    Args:
        error: what ended the rank.
        rank: of the run.
        timeout_minutes: how long the rank would wait for another, for the sentence.
    """
    trace = "".join(traceback.format_exception(error))
    message = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, SystemExit):
        return Failure(rank, message.removeprefix("pirl_plugin: "), trace, would_recur=True)
    if _PORT_IN_USE.search(message):
        return Failure(
            rank,
            "config.DISTRIBUTED.RUN_ID: expected a free port on the first node, and another "
            "process listens on it; choose another port, or end that process",
            trace,
        )
    if _is_distributed(error) and _PEER.search(message):
        return Failure(
            rank,
            f"rank {rank} lost another rank, or waited for it for config.HOOKS.PIRL_RUN."
            f"timeout_minutes = {timeout_minutes:g}: see what ended that one in its own node's "
            f"output, and start the run again",
            trace,
            is_cause=False,
        )
    if getattr(error, "stops_training", False) or isinstance(error, FloatingPointError):
        return Failure(rank, message, trace, would_recur=True)
    sentence = f"rank {rank} failed: {type(error).__name__}: {message[:1000]}"
    return Failure(rank, sentence, trace, unexpected=True)


def _is_distributed(error: BaseException) -> bool:
    name = type(error).__name__
    return isinstance(error, (RuntimeError, OSError)) and (
        name.startswith("Dist") or name in ("RuntimeError", "ConnectionError", "TimeoutError")
    )


def cause_of(failures: list[Failure]) -> Failure:
    """Of the failures of several ranks: one that is a cause, of the lowest rank, if there is one.

    Example:
        >>> cause_of([Failure(0, "lost rank 1", is_cause=False), Failure(1, "NaN")]).sentence
        'NaN'
    """
    return min(failures, key=lambda failure: (not failure.is_cause, failure.rank))


def write_tracebacks(failures: list[Failure], folder: Path) -> Path | None:
    """Write the tracebacks to ``failure.txt``; None where there are none or it cannot be written.

    Args:
        failures: of the ranks of this node.
        folder: the run's.
    """
    blocks = [f"rank {f.rank}: {f.sentence}\n{f.traceback}" for f in failures if f.traceback]
    path = Path(folder) / FAILURE_FILE
    try:
        if blocks:
            path.write_text("\n".join(blocks))
            return path
    except OSError:  # a full disk, a lost mount: the sentence matters more
        pass
    return None
