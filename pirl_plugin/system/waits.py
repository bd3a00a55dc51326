"""The one rule for waiting, which the watcher applies to this process's main thread.

While the main thread waits for a batch, an image or the listing of a folder, and neither this
process nor a loader worker has begun or finished an image or a folder for some minutes, it ends.

Row *no progress* of "How a command ends" (docs/architecture.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pirl_plugin.system.text import printable

TIMEOUT_MINUTES = 10.0
"""How long a command waits without progress, if no configuration sets it."""
PAUSE_S = 0.5
"""Time between two looks at the wait, in seconds."""


@dataclass(eq=False)
class Wait:
    """A wait of the main thread.

    Attributes:
        activity: returns what does not return, such as "reading a.jpg"; empty if unknown.
        progress: returns a value that changes with each image.
    """

    activity: Callable[[], str]
    progress: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Limit:
    """The maximum time without progress.

    Attributes:
        minutes: the limit.
        key: configuration key for the limit, if there is one.
        folder: folder for ``failure.txt``; None for a temporary folder.
    """

    minutes: float = TIMEOUT_MINUTES
    key: str = ""
    folder: Path | None = None

    def sentence(self, wait: Wait) -> str:
        """Return the sentence about a wait that took too long."""
        activity = printable(wait.activity())
        cause = f"{activity} does not return" if activity else "the loader processes do not respond"
        key = f" ({self.key})" if self.key else ""
        return (
            f"no image was read for {self.minutes:g} minutes{key}: {cause}. Check the file and its "
            f"disk or mount, then start again."
        )
