"""Start VISSL's launcher, wait for a line in the log, and act on the run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.helpers.host_runs import ELSEWHERE, host_script

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TRACEBACK = "Traceback (most recent call last)"
_PAUSE_S = 0.2
STEP = "PIRL: invariance: "  # logged by rank 0 every LOG_FREQUENCY steps


class Started:
    """A run in its own process group, with its output in two files."""

    def __init__(
        self,
        overrides: Sequence[str],
        folder: Path,
        command: Sequence[str] = (),
        **environment: str,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._files = [folder / "console.out", folder / "console.err"]
        command = [*(command or (sys.executable, str(host_script()))), *overrides]
        with self._files[0].open("w") as out, self._files[1].open("w") as err:
            self.process = subprocess.Popen(
                command,
                stdout=out,
                stderr=err,
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "PYTHONUNBUFFERED": "1",
                    "PIRL_PLUGIN_CONSOLE": "log",
                    **environment,
                },
                cwd=ELSEWHERE,
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        return self._files[0].read_text(errors="replace")

    @property
    def err(self) -> str:
        return self._files[1].read_text(errors="replace")

    @property
    def sentences(self) -> list[str]:
        """Sentences that the run printed on stderr."""
        return [line for line in self.err.splitlines() if line.startswith("pirl_plugin: ")]

    def wait_for(self, text: str, count: int = 1, seconds: float = 600) -> None:
        """Wait until the output contains the text ``count`` times."""
        end = time.monotonic() + seconds
        while self.out.count(text) < count:
            assert self.process.poll() is None, self.out[-2000:] + self.err[-2000:]
            assert time.monotonic() < end, f"no '{text}' in {self.out[-2000:]}{self.err[-2000:]}"
            time.sleep(0.05)

    def status(self, seconds: float = 600) -> int:
        """Wait for the end and return the exit status."""
        return self.process.wait(seconds)

    def status_soon(self, seconds: float) -> int:
        """Like ``status``, with a time limit that excludes waiting for a core."""
        waited = 0.0
        while self.process.poll() is None:
            assert waited < seconds, self.out[-2000:] + self.err[-2000:]
            queued_before = self._queued()
            time.sleep(_PAUSE_S)
            queued = max(0.0, self._queued() - queued_before)  # ended threads are no longer counted
            waited += max(0.0, _PAUSE_S - queued)
        return self.process.returncode

    def _queued(self) -> float:
        """Seconds for which threads in the run's group waited for a core (Linux)."""
        nanoseconds = 0
        for pid in self.group():
            for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                with contextlib.suppress(OSError):
                    nanoseconds += int(file.read_text().split()[1])
        return nanoseconds / 1e9

    def ranks(self) -> list[int]:
        """Rank processes, in start order."""
        return ranks_of(self.process.pid)

    def group(self) -> list[int]:
        """Live processes in the run's group."""
        return [pid for pid in _processes() if _group(pid) == self.process.pid]


@contextlib.contextmanager
def started(*args: object, **kwargs: object) -> Iterator[Started]:
    """Start a run and clean it up whatever the test finds."""
    run = Started(*args, **kwargs)  # type: ignore[arg-type]
    try:
        yield run
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.process.pid, signal.SIGKILL)
        run.process.wait()


def ranks_of(launcher: int) -> list[int]:
    """Rank processes of a launcher, in start order."""
    found = []
    for child in children(launcher):
        with contextlib.suppress(OSError):
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return sorted(found)


def children(pid: int) -> list[int]:
    """Direct children of a process."""
    return [child for child in _processes() if _field(child, 1) == pid]


def _processes() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _group(pid: int) -> int:
    return _field(pid, 2)


def _field(pid: int, index: int) -> int:
    """Field in ``/proc/PID/stat``, counted from the state; −1 for a zombie or missing process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] in "ZX" else int(fields[index])


def quiet(run: Started) -> str:
    """Check that no traceback was printed, and return the run's only sentence."""
    assert TRACEBACK not in run.out + run.err, (run.out + run.err)[-3000:]
    assert len(run.sentences) == 1, run.err
    return run.sentences[0]


def gone(run: Started, seconds: float = 20) -> bool:
    """Whether no rank and no loader worker is left."""
    end = time.monotonic() + seconds
    while run.group():
        assert time.monotonic() < end, run.group()
        time.sleep(0.1)
    return True
