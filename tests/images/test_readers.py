"""Batches read by several processes: the same samples, whatever becomes of the helpers."""

import logging
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from pirl_plugin.images.image_dataset import ImageDataset
from pirl_plugin.images.readers import MAX_PLACES, Readers, _places
from pirl_plugin.images.shared_bytes import SharedBytes
from pirl_plugin.utils.processes import is_alive
from pirl_plugin.views.jigsaw import JigsawViews

SMALL = {"image_size": 24, "patches_crop_size": 30, "patch_size": 8}


class Samples:
    """Samples of a host's shape: views in ``data``, lists beside it."""

    def __init__(self, folder, seconds=0.05):
        self.images = ImageDataset(folder, JigsawViews(**SMALL), seed=3)
        self.seconds = seconds

    def __getitem__(self, row):
        if row == 13:
            raise RuntimeError("row 13 is cursed")
        time.sleep(self.seconds)  # so that every process comes to some
        sample = self.images[row]
        views = {name: sample[name] for name in ("images", "patches")}
        label = torch.tensor(row)  # of no dimension, as a pretext task's
        return {"data": {**views, "label": label}, "data_idx": [row], "by": [os.getpid()]}


@pytest.fixture
def samples(image_folder):
    return Samples(image_folder / "train")


@pytest.fixture
def made(samples):
    """Makes readers of ``samples``, and ends them."""
    readers = []

    def make(count):
        readers.append(Readers(samples, count, method="forkserver"))
        for helper in readers[-1]._helpers:  # which have started when they have answered
            readers[-1]._ask(helper, [0], 0, 1)
            readers[-1]._answer(helper)
        return readers[-1]

    yield make
    for each in readers:
        each.close()


def check(samples, found, rows):
    """All samples, in order; returns the processes that read them."""
    assert [sample["data_idx"] for sample in found] == [[row] for row in rows]
    for row, sample in zip(rows, found, strict=True):
        expected = samples[row]["data"]
        assert sample["data"].keys() == expected.keys()
        for name, values in expected.items():
            assert torch.equal(sample["data"][name], values), (row, name)
    return [sample["by"][0] for sample in found]


@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_readers__end_their_helpers(method):
    readers = Readers([{"data": {}}] * 4, 2, method=method)
    processes = [helper.process for helper in readers._helpers]
    assert len(readers([0, 1, 2])) == 3
    readers.close()
    assert not any(process.is_alive() for process in processes)


@pytest.mark.parametrize("helpers", [1, 3])
def test_readers__give_what_one_process_gives(helpers, made, samples):
    readers = made(helpers)
    for rows in ([7, 0, 3, 9, 1, 12, 5], [2], [4, 6], list(range(12))):
        by = check(samples, readers(rows), rows)
        assert by[0] == os.getpid()
        assert len(set(by)) == min(helpers + 1, len(rows))


def test_readers__see_the_next_epoch(made, samples):
    readers = made(1)
    before = [sample["data"]["patches"].clone() for sample in readers([3, 4])]
    samples.images.set_epoch(1)
    check(samples, readers([3, 4]), [3, 4])
    assert not torch.equal(samples[4]["data"]["patches"], before[1])


def test_readers__raise_what_reading_raises(made, samples):
    readers = made(1)
    with pytest.raises(RuntimeError, match="row 13 is cursed"):
        readers([1, 13])  # the helper's share
    assert len(set(check(samples, readers([5, 6]), [5, 6]))) == 2  # it goes on


def test_readers__leave_a_call_that_failed(made, samples, monkeypatch):
    """A helper does not read on for a call that has ended, and its answer is no later call's."""
    readers = made(1)
    (helper,) = readers._helpers
    answers = []
    answer = Readers._answer
    monkeypatch.setattr(Readers, "_answer", lambda *of: answers.append(answer(*of)) or answers[-1])
    with pytest.raises(RuntimeError, match="row 13 is cursed"):
        readers([13, *5 * [*range(12)]])  # this process's share
    check(samples, readers([7]), [7])  # which no helper is asked for
    while helper.owes and not helper.pipe.poll():  # it may have answered in time for the call above
        time.sleep(0.01)
    assert len(set(check(samples, readers([5, 6]), [5, 6]))) == 2
    assert len(answers) == 2
    assert len(answers[0]) < 20  # of 31 in its share


def test_readers__read_what_a_slow_helper_has_not_come_to(made, samples):
    readers = made(2)
    slow, other = readers._helpers
    rows = [0, 1, 2, 3, 4, 5]
    os.kill(slow.process.pid, signal.SIGSTOP)
    for _ in range(2):  # the second time it is not asked
        assert set(check(samples, readers(rows), rows)) == {os.getpid(), other.process.pid}
    os.kill(slow.process.pid, signal.SIGCONT)
    while not slow.pipe.poll():
        time.sleep(0.01)
    assert slow.process.pid in check(samples, readers(rows), rows)


def test_places__are_the_own_share_and_then_what_others_have_left():
    table = SharedBytes(8 * (MAX_PLACES + 1))
    table.array.view("int64")[MAX_PLACES] = 7
    first, second, third = (_places(table, 7, 7, share, 3) for share in range(3))
    assert [next(first), next(first)] == [0, 1]
    assert next(second) == 2
    assert next(third) == 4
    assert list(first) == [3, 6, 5]  # the next share's last, then the last share's
    assert list(second) == list(third) == []
    assert list(_places(table, 6, 7, 0, 1)) == []  # another call has begun


def test_readers__go_on_without_a_helper_that_is_killed(made, samples, caplog):
    readers = made(2)
    rows = [0, 1, 2, 3, 4, 5]
    victim, other = (helper.process.pid for helper in readers._helpers)
    assert set(check(samples, readers(rows), rows)) == {os.getpid(), victim, other}
    os.kill(victim, signal.SIGKILL)
    while is_alive(victim):
        time.sleep(0.01)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            by = check(samples, readers(rows), rows)
    assert set(by) == {os.getpid(), other}
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "a process that helps to read images is gone (out of memory, or killed); "
        "1 are left, and the run goes on"
    ]


def test_readers__that_are_killed_while_they_read(made, samples, monkeypatch):
    readers = made(1)
    (helper,) = readers._helpers
    read = Samples.__getitem__

    def kill_it_meanwhile(self, row):
        time.sleep(0.02)  # it has begun with a row
        helper.process.kill()
        return read(self, row)

    monkeypatch.setattr(Samples, "__getitem__", kill_it_meanwhile)
    assert set(check(samples, readers([0, 1, 2]), [0, 1, 2])) == {os.getpid()}


def test_readers__share_what_could_not_be_read(tmp_path, make_image):
    for row in range(4):
        make_image(tmp_path / f"{row}.jpg", seed=row)
    (tmp_path / "3.jpg").write_bytes(b"broken")
    samples = Samples(tmp_path)
    readers = Readers(samples, 1, method="forkserver")
    found = readers([0, 3])
    assert not found[1]["data"]["images"].any()
    assert samples.images.source.num_unreadable == 1
    readers.close()


SCRIPT = """
import sys, time
from pirl_plugin.images.readers import Readers
if __name__ == "__main__":
    readers = Readers([{"data": {}}] * 4, 2, method=sys.argv[1])
    print(*(helper.process.pid for helper in readers._helpers), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_helpers__end_with_the_process_they_help(method, tmp_path):
    script = tmp_path / "asks.py"
    script.write_text(SCRIPT)
    asks = subprocess.Popen([sys.executable, script, method], stdout=subprocess.PIPE, text=True)
    helpers = [int(pid) for pid in asks.stdout.readline().split()]
    assert len(helpers) == 2
    assert all(map(is_alive, helpers))
    asks.kill()
    asks.wait()
    deadline = time.monotonic() + 20
    while any(map(is_alive, helpers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, helpers))
