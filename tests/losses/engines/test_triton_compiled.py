"""The kernels compile for GPUs that are not here, and stay short: counted in their machine code.

At 1.9 GHz, a tile of 16 rows of 512 bytes in 190 cycles of a multiprocessor, which issues an
instruction of each of its four warps a cycle, is 11 TB/s on 132 of them: more than memory gives.
"""

import json
import os
import subprocess
import sys

import pytest

# That of torch 2.6 is 3.2, whose ASTSource does not take constexprs.
pytest.importorskip("triton", "3.3", reason="triton is not installed")

# Instructions of a warp for a tile of 16 rows of 128 dimensions, two terms: a tenth over today's.
MOST = {
    "nce fp32": 195, "softmax fp32": 275, "odds fp32": 212,
    "nce bf16": 220, "softmax bf16": 300, "odds bf16": 235,
}  # fmt: skip


@pytest.fixture(
    scope="module",
    params=[pytest.param(80, marks=pytest.mark.slow, id="sm_80"), pytest.param(90, id="sm_90")],
)
def code(request, tmp_path_factory):
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.compiled_kernels", str(request.param)],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_kernels__compile(code):
    assert set(code) == {*MOST, "draw"}


@pytest.fixture
def machine_code(code):
    if "ptx" in code["draw"]:
        pytest.skip("needs cuobjdump, which Triton's package has")
    return code


@pytest.mark.parametrize("name", MOST)
def test_tile__takes_few_instructions(machine_code, name):
    full, rest = sorted(machine_code[name]["loops"], key=lambda loop: loop["instructions"])
    assert full["instructions"] <= MOST[name]
    assert rest["instructions"] <= 1.1 * MOST[name]
    for loop in (full, rest):
        assert loop["wide"] == (4 if name.endswith("fp32") else 2)  # of a row's eight lanes
        assert loop["barriers"] == 0  # no warp waits
        assert loop["shuffles"] == 6
    assert machine_code[name]["local"] == 0  # nothing is spilled
    assert machine_code[name]["registers"] <= 168  # three programs a multiprocessor, at least


def test_draw__is_computed_once(machine_code):
    """A lane makes eight draws from four counters of ten rounds each."""
    assert machine_code["draw"]["instructions"] <= 480
    assert machine_code["draw"]["local"] == 0
