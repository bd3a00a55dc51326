"""What every config and overlay composes to is what was recorded."""

import json

import pytest

from tests.helpers.composed import RECORD, cases, record


@pytest.fixture(scope="module")
def composed():
    return record()


def test_record__has_every_config():
    assert list(json.loads(RECORD.read_text())) == list(cases())


@pytest.mark.parametrize("name", list(cases()))
def test_config__composes_to_what_is_recorded(name, composed):
    """Where the change is meant: ``python -m tests.helpers.composed`` records again."""
    recorded = json.loads(RECORD.read_text())[name]
    assert json.loads(json.dumps(composed[name])) == recorded
