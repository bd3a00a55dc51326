"""Record tests/recordings/behaviour.json: ``python -m tests.helpers.record_behaviour``.

With ``--check`` it writes nothing and prints what differs from the recording. Record again only
where a difference is intended.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from tests.helpers.recorded_data import PARTS, VIEWS, record_part, record_views
from tests.helpers.recorded_losses import RUNS, record_runs
from tests.helpers.recording import bit_differences, environment, value_differences

PATH = Path(__file__).parents[1] / "recordings" / "behaviour.json"


def record() -> dict[str, Any]:
    """The recording of the code as it is."""
    runs: dict[str, Any] = {}
    for world_size in (1, 2):
        runs |= record_runs([name for name, run in RUNS.items() if run.world_size == world_size])
    return {
        "environment": environment(),
        "runs": {name: runs[name] for name in RUNS},
        "views": {name: record_views(name) for name in VIEWS},
        "parts": {name: record_part(name) for name in PARTS},
    }


def write(recording: dict[str, Any]) -> None:
    """Write the recording, one case a line."""
    sections = []
    for section, cases in recording.items():
        lines = [
            f"  {json.dumps(name)}: {json.dumps(case, separators=(',', ':'))}"
            for name, case in cases.items()
        ]
        sections.append(f" {json.dumps(section)}: {{\n" + ",\n".join(lines) + "\n }")
    PATH.write_text("{\n" + ",\n".join(sections) + "\n}\n")


def report(found: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Print what differs."""
    for section in ("runs", "views", "parts"):
        for name, case in recorded[section].items():
            values = list(value_differences(found[section][name], case))
            bits = [] if values else list(bit_differences(found[section][name], case))
            if values or bits:
                print(f"{section}, {name}: {'; '.join(values) or 'bits alone: ' + ', '.join(bits)}")
    changed = {k: v for k, v in found["environment"].items() if recorded["environment"][k] != v}
    print(f"environment: {changed or 'equal'}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # as in the tests
    found = json.loads(json.dumps(record()))  # tuples become lists, as in the file
    if "--check" in sys.argv[1:]:
        report(found, json.loads(PATH.read_text()))
    else:
        write(found)
