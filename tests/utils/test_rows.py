"""Some of many rows."""

from itertools import pairwise

import pytest

from pirl_plugin.utils.rows import evenly_spaced


@pytest.mark.parametrize("count", [1, 7, 8])
@pytest.mark.parametrize("total", [0, 1, 7, 8, 9, 15, 16, 17, 1000])
def test_evenly_spaced__rows_reach_from_end_to_end(total, count):
    rows = evenly_spaced(total, count)
    assert len(rows) == min(total, count)
    gaps = [after - before for before, after in pairwise([*rows, total])]
    assert sum(gaps) == total  # begins with the first row
    assert max(gaps, default=1) - min(gaps, default=1) <= 1
