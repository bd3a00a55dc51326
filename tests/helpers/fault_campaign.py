"""Inject every fault of the table in docs/guides/reliability.md, round after round.

``python -m tests.helpers.fault_campaign --rounds 3`` runs the tests that the table names, the long
ones too, and writes how often each passed into the table's last column. A round draws its own
random moments and signals.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

TABLE = Path("docs/guides/reliability.md")
_ROW = re.compile(
    r"^\| (?P<fault>[^|]+) \| (?P<what>[^|]+) \| (?P<tests>`tests/[^|]+) \| (?P<times>[^|]*) \|$"
)
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows(text: str) -> dict[str, list[tuple[str, str]]]:
    """Fault → the files and functions of its tests, of each row of the table."""
    found = filter(None, map(_ROW.match, text.splitlines()))
    return {row["fault"]: _TEST.findall(row["tests"]) for row in found}


def with_times(text: str, times: dict[str, str]) -> str:
    """The page with each row's last column replaced, where its fault was injected."""
    lines = []
    for line in text.splitlines():
        if (row := _ROW.match(line)) and row["fault"] in times:
            line = f"| {row['fault']} | {row['what']} | {row['tests']} | {times[row['fault']]} |"
        lines.append(line)
    return "\n".join(lines) + "\n"


def outcomes(report: Path) -> Counter[tuple[str, str, bool]]:
    """How often each test (file, function) passed and did not, by pytest's XML, skips apart."""
    counted: Counter[tuple[str, str, bool]] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("skipped") is not None:
            print(f"skipped: {case.get('classname')}::{case.get('name')}", flush=True)
            continue
        file = str(case.get("classname")).replace(".", "/") + ".py"
        passed = case.find("failure") is None and case.find("error") is None
        counted[file, str(case.get("name")).partition("[")[0], passed] += 1
    return counted


def survived(tests: list[tuple[str, str]], counted: Counter[tuple[str, str, bool]]) -> str:
    """``"passed of injected"``, of a row's tests together."""
    passed, failed = (sum(counted[(*test, how)] for test in tests) for how in (True, False))
    return f"{passed} of {passed + failed}"


def main() -> int:
    """Run the rounds; returns pytest's last status that was not 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="times that all are injected (3)")
    parser.add_argument("--first", type=int, default=1, help="number of the first round (1)")
    options = parser.parse_args()
    table = rows(TABLE.read_text())
    names = sorted({f"{file}::{name}" for tests in table.values() for file, name in tests})
    counted: Counter[tuple[str, str, bool]] = Counter()
    status = 0
    for number in range(options.first, options.first + options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-m",
                "not gpu",
            ]
            status = (
                subprocess.run(
                    [*command, f"--junitxml={report}", "-o", "junit_family=xunit2", *names],
                    env={**os.environ, "PIRL_FAULTS_SEED": str(number)},
                    check=False,
                ).returncode
                or status
            )
            counted += outcomes(report)
        print(f"round {number}: {counted.total()} faults so far", flush=True)
    times = {fault: survived(tests, counted) for fault, tests in table.items()}
    TABLE.write_text(with_times(TABLE.read_text(), times))
    return status


if __name__ == "__main__":
    sys.exit(main())
