"""Run one part of a check, and say how it ended."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from pirl_plugin.benchmark.gpu_check.devices import commit
from pirl_plugin.benchmark.gpu_check.parts import ROOT
from pirl_plugin.benchmark.gpu_check.record import CUT, FAILED, PASSED, SKIPPED
from pirl_plugin.utils.subprocesses import stream

if TYPE_CHECKING:
    from pirl_plugin.benchmark.gpu_check.parts import Part

_NO_TESTS = 5  # pytest's exit status where it found none


def run_part(
    part: Part, log: Path, seconds_left: float, photos: Path | None = None
) -> dict[str, Any]:
    """Run a part; its output goes to the console and to the log.

    Args:
        part: the part; all that it needs is installed.
        log: file that its output is added to.
        seconds_left: of the check.
        photos: folder of photos for the benchmarks; None: they draw their own.

    Returns:
        What :class:`~pirl_plugin.benchmark.gpu_check.record.Record` keeps of it.
    """
    allowed = min(part.limit, seconds_left)
    environment = {"PYTHONPATH": _python_path(), "PIRL_PLUGIN_GPU_CHECK": "1"}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results"
        ended = stream(
            part.command(file, photos),
            lambda line: print(line, end="", flush=True),
            log,
            append=True,
            environment=environment,
            own_session=True,
            seconds=allowed,
        )
        found: dict[str, Any] = {"seconds": round(time.monotonic() - start, 1), "commit": commit()}
        results = _results(part, file)
    if ended.timed_out and allowed < part.limit:
        return {**found, "status": CUT, "reason": f"cut after {allowed:.0f} s, for lack of time"}
    if ended.timed_out:
        return {**found, "status": FAILED, "reason": f"ran past its limit of {part.limit:.0f} s"}
    if results is not None:
        found["results"] = results
    if ended.status:
        reason = f"exit status {ended.status}: {ended.last}"
        if ended.status == _NO_TESTS and part.is_tests:
            reason = "no test was found"
        return {**found, "status": FAILED, "reason": reason}
    if results is None:
        return {**found, "status": FAILED, "reason": "it ended well and left no results"}
    if part.is_tests and not results["passed"]:
        reasons = sorted(set(results["skipped"].values()))
        return {**found, "status": SKIPPED, "reason": "; ".join(reasons) or "nothing was run"}
    return {**found, "status": PASSED}


def read_junit(file: Path) -> dict[str, Any]:
    """Counts of pytest's results, and the tests that failed or were skipped, with the reason.

    Returns:
        ``passed``, their number, and ``failed`` and ``skipped``, reasons by name.
    """
    results: dict[str, Any] = {"passed": 0, "failed": {}, "skipped": {}}
    for case in ElementTree.parse(file).getroot().iter("testcase"):
        outcome = next(
            (child for child in case if child.tag in ("failure", "error", "skipped")), None
        )
        if outcome is None:
            results["passed"] += 1
            continue
        kind = "skipped" if outcome.tag == "skipped" else "failed"
        reason = (outcome.get("message") or "").partition("\n")[0]
        results[kind][case.get("name")] = reason[:300]
    return results


def _results(part: Part, file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    if part.is_tests:
        return read_junit(file)
    figures: dict[str, Any] = json.loads(file.read_text())
    figures.pop("machine", None)  # the check's own
    return figures


def _python_path() -> str:
    """The clone first: the check needs no installation."""
    others = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(ROOT), *([others] if others else [])])
