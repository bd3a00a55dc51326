"""Results today are those recorded: losses, gradients, banks, negatives, views, batches.

Integers are equal everywhere. Floats agree within ``helpers.recording.RELATIVE`` everywhere, and to
the bit, as views do, where the environment is the recorded one. A change that is meant to alter the
order of float operations fails with "the values agree"; ``helpers.record_behaviour`` says how to
record again.
"""

from __future__ import annotations

import functools
import json
import os
from typing import Any

import pytest

from tests.helpers.record_behaviour import PATH
from tests.helpers.recorded_data import PARTS, VIEWS, record_part, record_views
from tests.helpers.recorded_losses import RUNS, interpreted, record_runs
from tests.helpers.recording import bit_differences, environment, value_differences

RECORDED = json.loads(PATH.read_text())


@functools.cache
def _run(name: str) -> dict[str, Any]:
    if RUNS[name].world_size == 1:
        return record_runs([name])[name]
    return _runs_in_processes()[name]


@functools.cache
def _runs_in_processes() -> dict[str, Any]:
    """All runs on two ranks, in one process group."""
    names = [name for name, run in RUNS.items() if run.world_size == 2]
    return record_runs([name for name in names if _runs_here(name)])


def _runs_here(name: str) -> bool:
    return not interpreted(name) or os.environ.get("TRITON_INTERPRET") == "1"


_MAKE = {
    "runs": _run,
    "views": functools.cache(record_views),
    "parts": functools.cache(record_part),
}
SAME_ENVIRONMENT = environment() == RECORDED["environment"]
CASES = [(section, name) for section in _MAKE for name in RECORDED[section]]


def _found(section: str, name: str) -> dict[str, Any]:
    if section == "runs" and not _runs_here(name):
        pytest.skip("records Triton's interpreter, which is off where there is a GPU")
    found: dict[str, Any] = json.loads(json.dumps(_MAKE[section](name)))  # as in the file
    return found


def test_recording__has_a_case_for_each_name():
    for section, names in (("runs", RUNS), ("views", VIEWS), ("parts", PARTS)):
        assert list(names) == list(RECORDED[section])


@pytest.mark.parametrize(("section", "name"), CASES)
def test_behaviour__is_that_recorded(section, name):
    found, recorded = _found(section, name), RECORDED[section][name]
    assert not list(value_differences(found, recorded))
    if SAME_ENVIRONMENT:
        bits = list(bit_differences(found, recorded))
        assert not bits, "the bits of floats or views differ, the values agree"


def test_environment__is_that_recorded():
    if not SAME_ENVIRONMENT:
        pytest.skip(f"values alone were compared, not bits: {environment()}")
