"""Errors at the command line: one sentence on the console, the traceback in ``failure.txt``.

The type of an exception decides whether the traceback is kept. When this plugin's own checks refuse
an input, they raise :class:`Refused`, which needs none.

Row *error* of "How a command ends" (docs/architecture.md).
"""

from __future__ import annotations

import datetime
import errno
import math
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from numbers import Real
from pathlib import Path

from pirl_plugin.system.text import printable

FAILURE_FILE = "failure.txt"
PREFIX = "pirl_plugin: "
"""Prefix for each sentence, on the console and in ``failure.txt``."""

# Types whose messages are clear without the type name.
_CLEAR = (ValueError, OSError, FloatingPointError, RuntimeError)


class Refused(ValueError):
    """One of this plugin's checks refused an input.

    The message is one sentence: what happened, with the value, and what to do. The command line
    shows only this sentence; other exceptions also leave a traceback in a file. An argument's name
    in backquotes is shown there as the option or key that the user types.
    """

    def __str__(self) -> str:
        return printable(super().__str__())  # it may quote names from a file


class MissingFile(Refused, FileNotFoundError):
    """A required file or folder does not exist."""


class MissingPackage(Refused, ModuleNotFoundError):
    """A required package is not installed."""


ENOUGH_SHARED_MEMORY = (
    "If /dev/shm is full, enlarge it, as with docker run --shm-size 8g, or use no loader processes"
)
"""Advice on errors in loader processes, which send images through shared memory."""
_LONGEST = 200  # characters of a value in a message
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


class FailedWrite(OSError):
    """A file cannot be written, for example on a full disk; takes the arguments of ``OSError``."""

    def __str__(self) -> str:
        if self.errno is None:  # it comes from a loader worker
            return super().__str__()
        remedy = "Choose another path."
        if self.errno in _FULL_DISK:
            remedy = "Free some space there, or choose another folder."
        return f"{self.strerror}: {self.filename}. {remedy}"


class FailedProcess(RuntimeError):
    """A child process failed; the message has the error, or what killed it."""


# Besides refusals: their sentence names the file or the process, and says everything.
_NEED_NO_TRACEBACK = (
    FailedWrite,
    FailedProcess,
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
)


def check(name: str, value: object, fits: bool, expected: str) -> None:
    """Raise ``Refused`` unless an argument is valid.

    Example:
        >>> check("momentum", 1.5, False, "a number in [0, 1)")
        Traceback (most recent call last):
        pirl_plugin.system.failures.Refused: momentum = 1.5: expected a number in [0, 1)
    """
    if not fits:
        raise Refused(f"{name} = {repr(value)[:_LONGEST]}: expected {expected}")


def check_name(name: str, value: object, names: Iterable[str]) -> None:
    """Raise ``Refused`` unless an argument is one of the names."""
    names = list(names)
    check(name, value, value in names, f"one of {', '.join(names)}")


def type_and_shape(value: object) -> str:
    """Describe a value for a message: a tensor's or array's dtype and shape, or the type.

    Example:
        >>> type_and_shape([1])
        'of type list'
    """
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return f"of type {type(value).__name__}"


def is_number(value: object) -> bool:
    """Return whether a value is a finite real number; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(float(value))


def is_refusal(error: BaseException) -> bool:
    """Return whether a check raised the exception, so that no traceback is needed.

    Hydra and OmegaConf check what users write on the command line and in YAML files.
    """
    return isinstance(error, Refused) or _is_of_configuration(error)


def sentence(error: BaseException, spell: Callable[[str], str] | None = None) -> str:
    """Return an exception's message in one line, with its type if the message alone is unclear.

    Args:
        error: the exception.
        spell: returns what the user types for an argument that a refusal names in backquotes.

    Example:
        >>> sentence(ValueError("λ = 2: expected at most 1")), sentence(KeyError("a"))
        ('λ = 2: expected at most 1', "KeyError: 'a'")
    """
    text = str(error).strip()
    if "Original Traceback" in text:  # an error in a loader worker: the last line has the cause
        text = re.sub(rf"^(\w+\.)*{type(error).__name__}: ", "", text.splitlines()[-1])
        if type(error) is RuntimeError:  # as torch raises
            text += f". {ENOUGH_SHARED_MEMORY}"
    text = re.sub(r"^\[Errno \d+\] ", "", text)
    first_paragraph = text.split("\n\n")[0]
    text = printable(" ".join(first_paragraph.split()))
    if spell is not None and isinstance(error, Refused):
        text = re.sub(r"`(\w+)`", lambda name: spell(name[1]), text)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return f"{text}. Use a smaller batch."
    if text and (_is_of_configuration(error) or isinstance(error, _CLEAR)):
        return text
    return f"{type(error).__name__}: {text}".removesuffix(": ")


def record(text: str, details: str, folder: Path | None) -> str:
    """Append a failure to ``failure.txt``.

    Earlier entries stay, because torchrun restarts a failed run in the same folder.

    Args:
        text: the sentence.
        details: the traceback; empty for a refusal.
        folder: the run's folder; None for a new temporary folder.

    Returns:
        The sentence, which names the file if there are details and they could be written.
    """
    try:
        path = (folder or Path(tempfile.mkdtemp(prefix="pirl_plugin_"))) / FAILURE_FILE
        if path.is_symlink():  # someone else may have planted it
            path.unlink()
        written = f"{text} (traceback in {path})" if details else text
        now = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{now}\n{written}\n{details}\n")
    except OSError:  # such as a full disk; the sentence matters more
        return text
    return written


def details_of(error: BaseException) -> str:
    """Return an exception's traceback; empty if the sentence is enough."""
    is_clear = is_refusal(error) or isinstance(error, _NEED_NO_TRACEBACK)
    is_full_disk = isinstance(error, OSError) and error.errno in _FULL_DISK
    return "" if is_clear or is_full_disk else "".join(traceback.format_exception(error))


@contextmanager
def in_one_sentence(
    folder: Path | None = None, spell: Callable[[str], str] | None = None
) -> Iterator[None]:
    """Turn any exception into one sentence and exit status 1.

    Args:
        folder: folder for ``failure.txt``, which then includes refusals; None for a temporary
            folder.
        spell: see :func:`sentence`.

    Raises:
        SystemExit: with the sentence, and the path to the traceback.
    """
    try:
        yield
    except Exception as error:
        text = f"{PREFIX}{sentence(error, spell)}"
        details = details_of(error)
        if folder is not None or details:
            text = record(text, details, folder)
        raise SystemExit(text) from None


def _is_of_configuration(error: BaseException) -> bool:
    return type(error).__module__.startswith(("hydra.", "omegaconf."))
