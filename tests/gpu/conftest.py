"""Each test runs on a GPU, marked ``gpu``; and, at a small size, on the CPU in the ordinary suite.

So the tests themselves are known to be right where nobody has a GPU. The suite's CPU runs use
Triton's interpreter; where there is a GPU, there is no interpreter, and they are left out.
"""

from __future__ import annotations

import os

import pytest
import torch

GPU = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.fixture(params=[GPU, "cpu"])
def device(request: pytest.FixtureRequest) -> str:
    """Where the test runs: full size on ``cuda``, small on ``cpu``."""
    return _prepared(request.param)


@pytest.fixture(params=[GPU, pytest.param("cpu", marks=pytest.mark.slow)])
def slow_device(request: pytest.FixtureRequest) -> str:
    """The same, for what takes a CPU seconds; a module makes it its ``device``."""
    return _prepared(request.param)


def _prepared(name: str) -> str:
    if name == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("Triton's interpreter is off where there is a GPU")
    torch.manual_seed(0)
    return name
