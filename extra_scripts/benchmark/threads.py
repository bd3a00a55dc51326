"""Compare spin settings for idle OpenMP threads: images per second when training on a CPU.

Runs ``pirl-plugin train config=pretrain/pirl/quick_jigsaw`` on generated images with each setting
in turn, on the machine as it is, and beside a process that keeps one core busy.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shared import add_rounds, new_parser, print_table, report

from pirl_plugin import cli
from pirl_plugin.quickstart.sample import write_sample_dataset
from pirl_plugin.system.arguments import WholeNumber
from pirl_plugin.vissl.host_config import require_host

_SETTINGS = {  # variable=value -> description
    "GOMP_SPINCOUNT=300": "the default here",
    "GOMP_SPINCOUNT=300000": "OpenMP's default",
    "OMP_WAIT_POLICY=PASSIVE": "",
    "OMP_WAIT_POLICY=ACTIVE": "",
}


def main(arguments: list[str]) -> None:
    """Run the script."""
    parser = new_parser("threads.py", "training on a CPU, with settings of OpenMP's threads")
    add = parser.add_argument
    add("--images", type=WholeNumber(64), default=1000, help="images in the data set")
    add("--epochs", type=WholeNumber(1), default=3, help="epochs per run")
    add_rounds(parser, 3)
    options = parser.parse_args(arguments)
    require_host()
    report(run, options)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; return ``rows``, one per setting and load."""
    rates: dict[tuple[str, bool], list[float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        data = Path(temporary, "data")
        write_sample_dataset(data, num_train=options.images, num_val=0)
        for turn in range(options.rounds):
            for is_busy in (False, True):
                for setting in _SETTINGS:
                    out = Path(temporary, f"{turn}_{is_busy}_{setting}")
                    with _load(is_busy):
                        rate = _images_per_s(setting, data / "train", out, options.epochs)
                    rates.setdefault((setting, is_busy), []).append(rate)
    rows = [
        {
            "setting": setting,
            "what": _SETTINGS[setting],
            "one_core_busy": is_busy,
            "images_per_s": statistics.median(of_rounds),
            "images_per_s_of_rounds": of_rounds,
        }
        for (setting, is_busy), of_rounds in rates.items()
    ]
    print_table(rows)
    return {"cores": len(os.sched_getaffinity(0)), "rows": rows}


@contextlib.contextmanager
def _load(is_busy: bool) -> Iterator[None]:
    if not is_busy:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def _images_per_s(setting: str, data: Path, out: Path, epochs: int) -> float:
    """Train, and return the rate that the run prints at the last step."""
    variables = {k: v for k, v in os.environ.items() if not re.match("GOMP_|OMP_", k)}
    name, _, value = setting.partition("=")
    command = [
        *(sys.executable, "-m", "pirl_plugin", "train", "config=pretrain/pirl/quick_jigsaw"),
        f"config.DATA.TRAIN.DATA_PATHS=[{data}]",
        f"config.CHECKPOINT.DIR={out}",
        f"config.OPTIMIZER.num_epochs={epochs}",
    ]
    result = subprocess.run(
        command, env={**variables, name: value}, check=True, capture_output=True, text=True
    )
    return float(re.findall(r"step .* ([\d,.]+) images/s", result.stdout)[-1].replace(",", ""))


if __name__ == "__main__":
    cli.main(main)
