"""The table of faults: its tests are there, and all that were injected were survived."""

import ast
from pathlib import Path

import pytest

from tests.helpers.fault_campaign import TABLE, outcomes, rows, survived, with_times

ROWS = rows(TABLE.read_text())


def test_table__is_read_whole():
    lines = [line for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    assert len(ROWS) == len(lines) - 1 > 20


@pytest.mark.parametrize("fault", ROWS)
def test_fault__is_injected_by_tests_that_are_there(fault):
    assert ROWS[fault]
    for file, name in ROWS[fault]:
        tree = ast.parse(Path(file).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_times__are_counted_from_the_report_of_the_tests(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="tests.a.test_b" name="test_c[1]"/>'
        '<testcase classname="tests.a.test_b" name="test_c[2]"><failure/></testcase>'
        '<testcase classname="tests.a.test_b" name="test_d"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    counted = outcomes(report)
    assert survived([("tests/a/test_b.py", "test_c")], counted) == "1 of 2"
    assert survived([("tests/a/test_b.py", "test_d")], counted) == "0 of 0"


def test_with_times__changes_the_last_column_alone():
    page = "text\n\n| a | b | `tests/x.py::test_y` |  |\n"
    assert with_times(page, {"a": "1 of 1"}) == page.replace("|  |", "| 1 of 1 |")
    assert with_times(page, {"z": "1 of 1"}) == page
