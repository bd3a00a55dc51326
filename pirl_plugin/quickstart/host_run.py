"""Run the host as a user would, in a process of its own, with its progress on one line."""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from pirl_plugin.utils.hydra_overrides import quoted
from pirl_plugin.utils.requirements import NOT_INSTALLED
from pirl_plugin.utils.subprocesses import stream

if TYPE_CHECKING:
    from collections.abc import Sequence

_STEP = re.compile(r"\[ep: (\d+)\] iter: (\d+); .*?loss: ([\d.]+)")
_SIZES = re.compile(  # what the host says before it trains, in this order
    r"One epoch = (?P<epoch>\d+) iterations|Total (?P<images>\d+) samples in one epoch"
    r"|Total (?P<iterations>\d+) iterations for training"
)


def run_host(
    overrides: Sequence[str],
    out: Path,
    title: str,
    threads: int,
    held: Sequence[int] = (),
    tool: str | None = None,
) -> float | None:
    """Train or evaluate through the host's engine; the whole of its log goes to ``out``.

    Args:
        overrides: Hydra overrides, beginning with ``config=…``.
        out: folder for ``console.log`` and the host's checkpoints and metrics.
        title: what the progress line calls the run.
        threads: of the run's one process.
        tool: another of the host's scripts than its engine's, such as ``train_svm.py``.
        held: file descriptors that the run keeps open as long as it lives.

    Returns:
        Images a second of the training loop; None where the host found the run finished already.

    Raises:
        SystemExit: the run failed; quotes the end of its log and says where the rest is.
    """
    out.mkdir(parents=True, exist_ok=True)
    log = out / "console.log"
    command = [*host_command(tool), *overrides, f"config.CHECKPOINT.DIR={quoted(out)}"]
    progress = _Progress(_bar(title))
    with progress.bar:
        ended = stream(
            command,
            progress.read,
            log,
            # The whole of the log goes to the console, which is read here.
            environment={"OMP_NUM_THREADS": str(threads), "PIRL_PLUGIN_CONSOLE": "log"},
            inherited=held,
        )
        rate = progress.finish() if ended.status == 0 else None
    if ended.status != 0:
        raise SystemExit(
            f"pirl_plugin: {title} failed with exit status {ended.status}; the end of "
            f"{log}:\n{''.join(ended.tail)}"
        )
    return rate


def host_command(tool: str | None = None) -> list[str]:
    """What starts the host's engine, or another of its scripts, on this Python."""
    if tool is None:
        return [sys.executable, "-m", "pirl_plugin", "train"]
    found = importlib.util.find_spec("vissl")
    if found is None or found.origin is None:
        raise SystemExit(NOT_INSTALLED)
    return [sys.executable, str(Path(found.origin).parents[1] / "tools" / tool)]


class _Progress:
    """What the host prints, as a bar in images."""

    def __init__(self, bar: tqdm[None]) -> None:
        self.bar = bar
        self._sizes: dict[str, int] = {}
        self._began = time.perf_counter()
        self._resumed_at: int | None = None

    def read(self, line: str) -> None:
        """Take a line of the host's log."""
        if found := _SIZES.search(line):
            self._sizes |= {name: int(value) for name, value in found.groupdict().items() if value}
            if len(self._sizes) == 3:
                sizes = self._sizes
                self.bar.reset(total=sizes["iterations"] * sizes["images"] // sizes["epoch"])
        elif (found := _STEP.search(line)) and self.bar.total:
            done = int(found[2]) * self._sizes["images"] // self._sizes["epoch"]
            if self._resumed_at is None:  # tqdm's rate and time left are of what follows
                self._resumed_at = self.bar.initial = self.bar.n = self.bar.last_print_n = done
            loss = f"epoch {int(found[1]) + 1}, loss {float(found[3]):.2f}"
            self.bar.set_postfix_str(loss, refresh=False)
            self.bar.update(done - self.bar.n)
        elif "Starting training" in line:
            self._began = time.perf_counter()

    def finish(self) -> float | None:
        """Fill the bar; images a second, None where nothing was trained."""
        if not self.bar.total:
            return None
        self.bar.update(self.bar.total - self.bar.n)
        if self._resumed_at is None:
            return None
        return float(self.bar.total - self._resumed_at) / (time.perf_counter() - self._began)


def _bar(title: str) -> tqdm[None]:
    """A bar in images: rate and time left are tqdm's; a line now and then where output is a log."""
    return tqdm(
        desc=title,
        unit=" images",
        file=sys.stdout,
        mininterval=0.5 if sys.stdout.isatty() else 20,
        dynamic_ncols=True,
        smoothing=0.05,
    )
