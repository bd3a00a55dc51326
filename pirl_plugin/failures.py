"""Errors at the command line: one sentence on the console, the traceback in ``failure.txt``."""

from __future__ import annotations

import re
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FAILURE_FILE = "failure.txt"
_HINTS = {  # part of a message of torch -> what to do
    "unable to allocate shared memory": "; give the container more of it, such as docker run "
    "--shm-size=8g, or take no workers",
}
# Types whose messages are clear without the type's name.
_CLEAR = (ValueError, OSError, FloatingPointError, RuntimeError)
_OF_A_PEER = re.compile(
    r"timed? ?out|wait timeout|connection (was )?(closed|reset|refused)|broken pipe|"
    r"socket.*(failed|closed)|gloo.*error|nccl.*(abort|remote|watchdog|unhandled)",
    re.IGNORECASE,
)


class Refused(ValueError):
    """A check of this plugin refuses an input.

    The message is one sentence: what was found, what was expected, what to do. The command line
    shows only this sentence; other exceptions also leave a traceback in a file.
    """


class MissingFile(Refused, FileNotFoundError):
    """A check of this plugin needs a file or folder that does not exist."""


class MissingPackage(Refused, ModuleNotFoundError):
    """A command needs a package that is not installed."""


def is_refusal(error: BaseException) -> bool:
    """Return whether a check raised the exception, so that its sentence needs no traceback.

    Hydra and OmegaConf check what users write on the command line and in YAML files.
    """
    return isinstance(error, Refused) or _is_of_configuration(error)


def _is_of_configuration(error: BaseException) -> bool:
    return type(error).__module__.startswith(("hydra.", "omegaconf."))


def sentence(error: BaseException) -> str:
    """Return an exception's message in one line, with its type if the message alone is unclear.

    Example:
        >>> sentence(ValueError("λ = 2: expected at most 1")), sentence(KeyError("a"))
        ('λ = 2: expected at most 1', "KeyError: 'a'")
    """
    text = str(error).strip()
    if "Original Traceback" in text:  # an error in a loader's worker: the last line has the cause
        text = text.splitlines()[-1]
    text = " ".join(text.split("\n\n")[0].split())
    text += "".join(hint for part, hint in _HINTS.items() if part in text)
    clear = _is_of_configuration(error) or isinstance(error, _CLEAR)
    return text if clear and text else f"{type(error).__name__}: {text}".removesuffix(": ")


def rank_sentence(error: BaseException, rank: int, timeout_minutes: float) -> str:
    """Return the sentence for one of several ranks, which wait so many minutes for each other."""
    if isinstance(error, (RuntimeError, OSError)) and _OF_A_PEER.search(str(error)):
        return (
            f"rank {rank}: another rank ended, or did not respond for {timeout_minutes:g} minutes "
            f"(config.HOOKS.PIRL_RUN.timeout_minutes); find its error, and start again"
        )
    said = sentence(error)
    return said if is_refusal(error) else f"rank {rank}: {said}"


def record(error: BaseException, said: str, folder: Path | None) -> Path | None:
    """Append an exception with its traceback to ``failure.txt``; return its path, None if it fails.

    Args:
        error: the exception.
        said: its sentence, the first line of the entry.
        folder: the run's folder; None for a new temporary folder.
    """
    try:
        folder = folder or Path(tempfile.mkdtemp(prefix="pirl_plugin_"))
        path = folder / FAILURE_FILE
        with path.open("a") as file:
            file.write(f"{said}\n{''.join(traceback.format_exception(error))}\n")
        return path
    except OSError:  # such as a full disk: the sentence is more important
        return None


@contextmanager
def in_one_sentence(folder: Path | None = None) -> Iterator[None]:
    """Turn any exception into one sentence and exit status 1.

    Args:
        folder: folder for ``failure.txt``; None for a temporary folder.

    Raises:
        SystemExit: the sentence, and the path of the traceback.
    """
    try:
        yield
    except BrokenPipeError:  # the reader of the pipe, such as head, has ended
        raise
    except Exception as error:
        said = f"pirl_plugin: {sentence(error)}"
        refused = is_refusal(error)
        path = None if refused and folder is None else record(error, said, folder)
        raise SystemExit(said if refused or not path else f"{said} (traceback in {path})") from None
