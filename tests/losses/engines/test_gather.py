"""Rows gathered with prefetching are those that torch gathers."""

import numba
import numpy as np
import pytest
import torch

from pirl_plugin.losses.engines import gather
from pirl_plugin.losses.engines.gather import gather_rows


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.uint8]
)
@pytest.mark.parametrize(("count", "dim"), [(0, 4), (1, 128), (15, 3), (16, 20), (300, 128)])
def test_rows__are_those_of_index_select(dtype, count, dim):
    generator = torch.Generator().manual_seed(0)
    table = (100 * torch.rand(50, dim, generator=generator)).to(dtype)
    index = torch.randint(50, (count,), generator=generator)
    out = torch.empty(count, dim, dtype=dtype)
    assert gather_rows(table, index, out) is out
    assert torch.equal(out, torch.index_select(table, 0, index))


@pytest.mark.parametrize("bad", [-1, 50])
def test_rows__outside_the_table_are_refused(bad):
    index = torch.tensor([0] * 40 + [bad])
    with pytest.raises(
        IndexError, match=rf"row is {bad}: expected one in \[0, 50\); check the neg"
    ):
        gather_rows(torch.zeros(50, 4), index, torch.empty(41, 4))


def test_kernel__asks_for_rows_before_it_reads_them():
    kernel = numba.njit(gather._gather.py_func)  # as the cached one, whose code is not shown
    kernel(np.zeros((50, 32)), np.zeros(40, np.int64), np.empty((40, 32)), 8)
    (code,) = kernel.inspect_llvm().values()
    assert "call void @llvm.prefetch" in code
