"""Run the parts of a check in the time there is, and go on with the rest in the next call."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pirl_plugin.benchmark.gpu_check.devices import describe, find_devices
from pirl_plugin.benchmark.gpu_check.parts import PARTS, Part
from pirl_plugin.benchmark.gpu_check.record import CUT, FAILED, PASSED, SKIPPED, Record
from pirl_plugin.benchmark.gpu_check.run_part import run_part
from pirl_plugin.benchmark.gpu_check.tables import page
from pirl_plugin.utils.arguments import user_path
from pirl_plugin.utils.outputs import write_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

NO_GPU = 2  # exit status


def main(arguments: list[str], parts: Sequence[Part] = PARTS) -> int:
    """Run the command.

    Returns:
        The exit status: 0 where nothing failed, also where parts are left for the next call; 1
        where a part failed; 2 where there is no GPU.

    Raises:
        SystemExit: an argument, or what ``--out`` holds, cannot be used.
    """
    options = _parse(arguments)
    devices = find_devices()
    if not devices:
        print("pirl_plugin: no GPU that torch can use was found: run this where there is one")
        return NO_GPU
    signal.signal(signal.SIGTERM, _exit)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    record = Record.read(out / "gpu.json", describe(devices))
    end = time.monotonic() + 60 * options.minutes
    _keep(record, parts, out)
    for part in record.due(parts):
        found = _run(part, out / "gpu.log", end - time.monotonic(), options.data)
        if found is not None:
            record.parts[part.name] = found
            print(f"== {part.name}: {_outcome(found)}", flush=True)
        _keep(record, parts, out)
    return _say_end(record, out)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu_check.sh", description=__doc__)
    parser.add_argument("--minutes", type=float, default=8, help="for this call (default: 8)")
    parser.add_argument(
        "--out",
        type=user_path,
        default=Path("runs/gpu_check"),
        metavar="DIR",
        help="gpu.json, gpu.md and gpu.log; a call goes on where the last one in it was",
    )
    parser.add_argument(
        "--data",
        type=user_path,
        metavar="PHOTOS",
        help="photos to measure on (default: drawn ones)",
    )
    options = parser.parse_args(arguments)
    if options.data is not None:
        if not options.data.is_dir():
            parser.error(f"--data {options.data}: expected a folder of photos")
        options.data = options.data.resolve()
    if not options.minutes > 0:
        parser.error(f"--minutes {options.minutes}: expected a number above 0")
    return options


def _run(part: Part, log: Path, seconds_left: float, photos: Path | None) -> dict[str, Any] | None:
    """Run one part; None where there is too little time for it."""
    missing = part.missing()
    if missing:
        needs = ", ".join(missing)
        return {"status": SKIPPED, "seconds": 0.0, "reason": f"not installed here: {needs}"}
    if seconds_left < part.seconds:
        return None
    print(f"== {part.name}", flush=True)
    with log.open("a") as file:
        file.write(f"== {part.name}\n")
    return run_part(part, log, seconds_left, photos)


def _keep(record: Record, parts: Sequence[Part], out: Path) -> None:
    ended = (PASSED, FAILED, SKIPPED)
    record.left = [part.name for part in parts if record.status(part) not in ended]
    record.write(out / "gpu.json")
    write_text(out / "gpu.md", page([record]))


def _say_end(record: Record, out: Path) -> int:
    for status in (PASSED, SKIPPED, FAILED, CUT):
        of_it = {name: part for name, part in record.parts.items() if part["status"] == status}
        for name, part in of_it.items():
            print(f"{name}: {_outcome(part)}")
    if record.left:
        print(f"Left for lack of time, the same command goes on: {', '.join(record.left)}")
    failed = record.failed()
    if failed:
        print(
            f"pirl_plugin: {len(failed)} parts failed: {', '.join(failed)}; see {out / 'gpu.log'}"
        )
    print(out / "gpu.md")
    return 1 if failed else 0


def _outcome(found: dict[str, Any]) -> str:
    reason = f" ({found['reason']})" if found.get("reason") else ""
    return f"{found['status']} in {found['seconds']:.0f} s{reason}"


def _exit(number: int, frame: FrameType | None) -> None:
    """End in the ordinary way, so that a part that runs is ended too."""
    sys.exit(128 + number)
