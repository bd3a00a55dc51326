"""Large tensors are backed by huge pages where Linux grants them, and are as others elsewhere."""

import mmap
import sys
from pathlib import Path

import pytest
import torch

from pirl_plugin.utils.huge_pages import advise_huge_pages

_GRANTED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def _advised(tensor):
    """Whether the mapping that holds the middle of a tensor has the flag of the advice."""
    middle, inside = tensor.data_ptr() + tensor.nbytes // 2, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, _, rest = line.partition(" ")
        if "-" in first and not first.endswith(":"):
            start, end = (int(part, 16) for part in first.split("-"))
            inside = start <= middle < end
        elif inside and first == "VmFlags:":
            return "hg" in rest.split()
    return False


def test_advice__keeps_the_tensor():
    tensor = torch.empty(40 * 2**20, dtype=torch.uint8)
    assert advise_huge_pages(tensor).fill_(3).eq(3).all()
    assert advise_huge_pages(torch.ones(3)).eq(1).all()


@pytest.mark.skipif(sys.platform != "linux" or not _GRANTED.exists(), reason="needs Linux's pages")
def test_advice__reaches_the_mapping_of_a_large_tensor():
    pages = [mmap.mmap(-1, 100 * 2**20, mmap.MAP_PRIVATE) for _ in range(2)]  # not of the heap
    advised, other = (torch.frombuffer(each, dtype=torch.uint8) for each in pages)
    assert _advised(advise_huge_pages(advised))
    assert not _advised(other)
