"""Models side by side: each process sees one GPU of those that may be used."""

import queue

import pytest

from pirl_plugin.experiments.claims import workers


@pytest.mark.parametrize(
    ("visible", "expected"), [(None, ["0", "1", "2"]), ("4,6", ["4", "6", "4"]), ("7", ["7"] * 3)]
)
def test_process__sees_one_device(visible, expected, monkeypatch):
    numbers = queue.Queue()
    for number in range(3):
        numbers.put(number)
    seen = []
    for _ in range(3):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")  # undone at the end
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        workers._take_device(numbers)
        seen.append(workers.os.environ["CUDA_VISIBLE_DEVICES"])
    assert seen == expected


def test_outcome__of_a_failure_is_what_is_to_be_said(monkeypatch):
    def fail(job, settings):
        raise OSError("no space left")

    monkeypatch.setattr(workers, "make", fail)
    assert workers._outcome(None, None) == "no space left"
