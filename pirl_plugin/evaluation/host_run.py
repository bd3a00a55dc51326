"""Run the host as a user would, in a process of its own, with its progress on one line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from tqdm import tqdm

from pirl_plugin.overrides import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_STEP = re.compile(r"\[ep: (\d+)\] iter: (\d+); .*?loss: ([\d.]+)")
_SIZES = re.compile(  # what the host says before it trains, in this order
    r"One epoch = (?P<epoch>\d+) iterations|Total (?P<images>\d+) samples in one epoch"
    r"|Total (?P<iterations>\d+) iterations for training"
)


def run_host(
    overrides: Sequence[str], out: Path, title: str, threads: int, held: Sequence[int] = ()
) -> float | None:
    """Train or evaluate through the host's engine; the whole of its log goes to ``out``.

    Args:
        overrides: Hydra overrides, beginning with ``config=…``.
        out: folder for ``console.log`` and the host's checkpoints and metrics.
        title: what the progress line calls the run.
        threads: of the run's one process.
        held: file descriptors that the run keeps open as long as it lives.

    Returns:
        Images a second of the training loop; None where the host found the run finished already.

    Raises:
        SystemExit: the run failed; quotes the end of its log and says where the rest is.
    """
    out.mkdir(parents=True, exist_ok=True)
    log = out / "console.log"
    command = [sys.executable, "-m", "pirl_plugin", "train", *overrides]
    command.append(f"config.CHECKPOINT.DIR={quoted(out)}")
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
    last: deque[str] = deque(maxlen=15)
    with (
        log.open("w") as file,
        subprocess.Popen(
            command,
            env=environment,
            text=True,
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=held,
        ) as process,
        _bar(title) as bar,
    ):
        sizes: dict[str, int] = {}
        began, resumed_at = time.perf_counter(), None
        for line in process.stdout or ():
            file.write(line)
            last.append(line)
            if found := _SIZES.search(line):
                sizes |= {name: int(value) for name, value in found.groupdict().items() if value}
                if len(sizes) == 3:
                    bar.reset(total=sizes["iterations"] * sizes["images"] // sizes["epoch"])
            elif (found := _STEP.search(line)) and bar.total:
                done = int(found[2]) * sizes["images"] // sizes["epoch"]
                resumed_at = done if resumed_at is None else resumed_at
                bar.set_postfix_str(f"epoch {int(found[1]) + 1}, loss {float(found[3]):.2f}", False)
                bar.update(done - bar.n)
            elif "Starting training" in line:
                began = time.perf_counter()
        seconds = time.perf_counter() - began
        if process.wait() == 0 and bar.total:
            bar.update(bar.total - bar.n)
    if process.returncode != 0:
        raise SystemExit(
            f"pirl_plugin: {title} failed with exit status {process.returncode}; the end of "
            f"{log}:\n{''.join(last)}"
        )
    return None if resumed_at is None else (bar.total - resumed_at) / seconds


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
