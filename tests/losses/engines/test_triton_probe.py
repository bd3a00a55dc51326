"""Where Triton cannot run, the scores are summed in blocks, after one warning."""

from types import SimpleNamespace

import pytest
import torch

from pirl_plugin.losses.engines import choice, triton_probe
from pirl_plugin.losses.engines.blocked import BlockedSums
from pirl_plugin.memory import Draw
from tests.helpers.estimator_tester import DEVICE

GPU = torch.device("cuda", 0)
RUN_KERNEL = triton_probe._run_kernel
NO_COMPILER = "Failed to find C compiler. Please specify via CC environment variable"


class OnGpu:
    """A table of the bank."""

    device, dtype = GPU, torch.float32

    def __len__(self):
        return 10**6


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    """A GPU as new as needed, that has not been asked yet."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(triton_probe, "_run_kernel", lambda device: True)
    for function in (triton_probe.triton_runs, triton_probe.why_not):
        function.cache_clear()
    yield
    for function in (triton_probe.triton_runs, triton_probe.why_not):
        function.cache_clear()


def best():
    """What ``auto`` chooses for a batch on the GPU."""
    rows = torch.arange(3)
    batch = SimpleNamespace(
        queries=SimpleNamespace(dtype=torch.float32, shape=(2, 3, 128)),
        table=OnGpu(),
        draw=Draw(rows, rows, 10**6, 32_000, seed=0, step=0),
        num_negatives=32_000,
    )
    return choice._best(batch)


def no_compiler(device):
    raise RuntimeError(f"{NO_COMPILER}\nmore lines")


def no_package(name):
    return None


def test_auto__is_triton_where_it_runs(caplog):
    assert best() == "triton"
    assert not caplog.records


@pytest.mark.parametrize(
    ("place", "name", "value", "message"),
    [
        (triton_probe, "_run_kernel", no_compiler, f"{NO_COMPILER}; it needs a C compiler"),
        (torch.cuda, "get_device_capability", lambda d: (6, 1), "capability 6.1: it needs 7.0"),
        (triton_probe.importlib.util, "find_spec", no_package, "missing: pip install triton"),
        (triton_probe, "_run_kernel", lambda device: False, "its sums are wrong here"),
    ],
)  # fmt: skip
def test_auto__is_blocked_after_one_warning_where_it_does_not(
    place, name, value, message, monkeypatch, caplog
):
    monkeypatch.setattr(place, name, value)
    assert [best() for _ in range(3)] == ["blocked"] * 3
    (record,) = caplog.records
    assert "LOSS.pirl_loss.scores = auto: expected Triton to run, but " in record.message
    assert message in record.message
    assert "\n" not in record.message


def test_triton__is_refused_where_it_does_not_run(monkeypatch):
    monkeypatch.setattr(triton_probe, "_run_kernel", no_compiler)
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(
        ValueError, match=r"scores = triton: expected Triton to run, but .*Failed to"
    ):
        choice._check_triton(GPU, torch.float32)


def test_lack_of_memory__is_not_lack_of_triton(monkeypatch):
    def full(device):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(triton_probe, "_run_kernel", full)
    with pytest.raises(torch.OutOfMemoryError):
        triton_probe.why_not(GPU)


def test_probe__runs_the_kernel(monkeypatch):
    monkeypatch.undo()
    assert triton_probe._run_kernel(torch.device(DEVICE))
    monkeypatch.setattr(triton_probe.BlockedSums, "sigmoid", lambda self, shift: (shift, shift))
    assert not triton_probe._run_kernel(torch.device(DEVICE))


def test_kernel__is_compared_with_float64(monkeypatch):
    """Float32 would be TF32 where that is allowed, whose sums are off by more than is tolerated."""
    types = []

    class Recorded(BlockedSums):
        def __init__(self, queries, table, draw):
            types.extend([queries.dtype, table.dtype])
            super().__init__(queries, table, draw)

    monkeypatch.setattr(triton_probe, "BlockedSums", Recorded)
    assert RUN_KERNEL(torch.device("cpu"))
    assert types == [torch.float64] * 2
