"""The values of the sweeps of Sec. 4."""

import pytest

from pirl_plugin.quickstart.sweep.values import points
from tests.helpers.sweeps import VALUES


@pytest.mark.parametrize("name", VALUES)
def test_points__are_the_papers(name):
    assert points(name, None) == [(m, v) for m, values in VALUES[name].items() for v in values]


@pytest.mark.parametrize(
    ("name", "chosen", "expected"),
    [
        ("lambda", ["0.5", "0"], [("PIRL", 0), ("PIRL", 0.5)]),
        ("lambda", ["1.0", "0.1"], [("PIRL", 0.1), ("PIRL", 1)]),
        ("permutations", ["1", "20"], [("PIRL", 1), ("PIRL", 20), ("Jigsaw", 20)]),
        ("permutations", ["362880"], [("PIRL", 362880)]),
        ("negatives", ["65536"], [("PIRL", 65536)]),
    ],
)
def test_points__can_be_chosen(name, chosen, expected):
    found = points(name, chosen)
    assert found == expected
    assert [type(value) for _, value in found] == [type(value) for _, value in expected]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lambda", "1.5", "'1.5' for λ; expected a number from 0 to 1"),
        ("lambda", "half", "'half' for λ; expected a number"),
        ("permutations", "0", r"'0' for \|T\|; expected a whole number from 1 to 362880"),
        ("permutations", "10.5", "expected a whole number"),
        ("negatives", "0", "expected a whole number of at least 1"),
    ],
)
def test_points__refuse_other_values(name, value, message):
    with pytest.raises(ValueError, match=message):
        points(name, [value])
