"""Each test runs on a GPU, marked ``gpu``; and, at a small size, on the CPU in the ordinary suite.

So the tests themselves are known to be right where nobody has a GPU. The suite's CPU runs use
Triton's interpreter; where there is a GPU, there is no interpreter, and they are left out.
"""

from __future__ import annotations

import os

import pytest
import torch


@pytest.fixture(params=[pytest.param("cuda", marks=pytest.mark.gpu), "cpu"])
def device(request: pytest.FixtureRequest) -> str:
    """Where the test runs: full size on ``cuda``, small on ``cpu``."""
    name: str = request.param
    if name == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("Triton's interpreter is off where there is a GPU")
    torch.manual_seed(0)
    return name
