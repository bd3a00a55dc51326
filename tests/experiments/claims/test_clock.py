"""CPU time at each checkpoint, over stops; which checkpoints stay."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
import zipfile

import pytest

from pirl_plugin.experiments.claims import clock
from pirl_plugin.experiments.claims.clock import (
    Clock,
    checkpoints,
    costs,
    cpu_seconds,
    remove_partial,
)

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="CPU time is /proc's")


def save(folder, phase, final=False):
    write(folder / f"model_{'final_checkpoint_' if final else ''}phase{phase}.torch")


def write(file):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.pkl", "weights")


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr(clock, "_INTERVAL", 0.02)


def marks(folder, kind="marks"):
    return json.loads((folder / "clock.json").read_text())[kind]


def wait_for(numbers, folder, kind="marks"):
    for _ in range(500):
        if sorted(map(int, marks(folder, kind))) == numbers:
            return
        time.sleep(0.01)
    raise AssertionError(marks(folder, kind))


def test_clock__notes_each_checkpoint_and_keeps_the_evaluated(tmp_path):
    with Clock(tmp_path, keep=[2, 4]):
        for phase in range(3):
            save(tmp_path, phase)
            wait_for([*range(1, phase + 2)], tmp_path)
        save(tmp_path, 3, final=True)
    wall = [cost["wall"] for cost in costs(tmp_path, [1, 2, 3, 4]).values()]
    assert wall == sorted(wall)
    assert sorted(checkpoints(tmp_path)) == [2, 4]


def test_clock__goes_on_from_the_checkpoint_that_the_run_goes_on_from(tmp_path, monkeypatch):
    monkeypatch.setattr(clock, "cpu_seconds", lambda argument: 10.0)
    with Clock(tmp_path, keep=[]):
        save(tmp_path, 0)
        wait_for([1], tmp_path)
    # stopped in the second epoch, whose time is lost; started again
    with Clock(tmp_path, keep=[]):
        save(tmp_path, 1, final=True)
        wait_for([1, 2], tmp_path)
    assert [cost["cpu"] for cost in costs(tmp_path, [1, 2]).values()] == [10, 20]


def test_clock__counts_the_part_of_an_epoch_that_was_saved(tmp_path, monkeypatch):
    used = [100.0]
    monkeypatch.setattr(clock, "cpu_seconds", lambda argument: used[0])
    with Clock(tmp_path, keep=[1]):
        save(tmp_path, 0)
        wait_for([1], tmp_path)
        used[0] = 150.0
        write(tmp_path / "model_iteration15.torch")
        wait_for([15], tmp_path, "inside")
        used[0] = 190.0
        write(tmp_path / "model_iteration19.torch")  # SIGTERM, say
    assert not (tmp_path / "model_iteration15.torch").exists()
    used[0] = 12.0
    with Clock(tmp_path, keep=[1]):
        save(tmp_path, 1, final=True)
        wait_for([1, 2], tmp_path)
    assert [cost["cpu"] for cost in costs(tmp_path, [1, 2]).values()] == [100, 202]
    assert not (tmp_path / "model_iteration19.torch").exists()


def test_clock__reads_what_earlier_versions_noted(tmp_path, monkeypatch):
    monkeypatch.setattr(clock, "cpu_seconds", lambda argument: 5.0)
    save(tmp_path, 0)
    mark = {"cpu": 10.0, "wall": 11.0}
    noted = {"start": {"cpu": 0.0, "wall": 0.0, "time": 0.0}, "marks": {"1": mark}}
    (tmp_path / "clock.json").write_text(json.dumps(noted))
    with Clock(tmp_path, keep=[]):
        save(tmp_path, 1)
        wait_for([1, 2], tmp_path)
    assert [cost["cpu"] for cost in costs(tmp_path, [1, 2]).values()] == [10, 15]


def test_clock__of_a_run_under_way_counts_its_process_once(tmp_path, monkeypatch):
    used = [10.0]
    monkeypatch.setattr(clock, "cpu_seconds", lambda argument: used[0])
    with Clock(tmp_path, keep=[]):
        save(tmp_path, 0)
        wait_for([1], tmp_path)
    # The watching process was killed, the run lives on: the same process has used 50 s by now.
    used[0] = 50.0
    save(tmp_path, 2)
    save(tmp_path, 4, final=True)
    with Clock(tmp_path, keep=[3], under_way=True):
        wait_for([1, 5], tmp_path)
    # Epochs 2 to 4 were not seen: between 10 and 50 s.
    assert [c["cpu"] for c in costs(tmp_path, [1, 2, 3, 4, 5]).values()] == [10, 20, 30, 40, 50]


def test_costs__of_nothing_are_nothing(tmp_path):
    assert costs(tmp_path, [0]) == {0: {"cpu": 0, "wall": 0}}


def test_costs__beyond_the_last_mark_are_in_proportion_to_epochs(tmp_path, monkeypatch):
    """The run outlived the command that watched it, and no other came before its end."""
    monkeypatch.setattr(clock, "cpu_seconds", lambda argument: 60.0)
    with Clock(tmp_path, keep=[]):
        save(tmp_path, 5)
        wait_for([6], tmp_path)
    save(tmp_path, 23, final=True)
    assert [cost["cpu"] for cost in costs(tmp_path, [6, 12, 24]).values()] == [60, 120, 240]


def test_costs__that_nobody_saw_are_unknown(tmp_path):
    with Clock(tmp_path, keep=[]):
        pass
    save(tmp_path, 3, final=True)
    assert costs(tmp_path, [0, 4]) == {0: {"cpu": 0, "wall": 0}, 4: None}


def test_clock__goes_on_from_a_checkpoint_that_nobody_saw(tmp_path, monkeypatch):
    monkeypatch.setattr(clock, "cpu_seconds", lambda argument: 10.0)
    with Clock(tmp_path, keep=[]):
        save(tmp_path, 0)
        wait_for([1], tmp_path)
    save(tmp_path, 2)  # the command was killed, its run went on to here, and was stopped
    with Clock(tmp_path, keep=[]):
        save(tmp_path, 3)
        wait_for([1, 4], tmp_path)
    assert [cost["cpu"] for cost in costs(tmp_path, [1, 3, 4]).values()] == [10, 30, 40]


def test_clock__does_not_count_from_a_checkpoint_of_unknown_seconds(tmp_path):
    save(tmp_path, 2)
    with Clock(tmp_path, keep=[3]):
        save(tmp_path, 3)
        save(tmp_path, 4)
        time.sleep(0.1)
    assert costs(tmp_path, [3, 5]) == {3: None, 5: None}
    assert sorted(checkpoints(tmp_path)) == [3, 5]


@linux
def test_cpu_seconds__are_those_of_the_run_and_its_children():
    burn = "import time\nwhile time.process_time() < 0.65: pass\ntime.sleep(60)"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}, 'child'])"
    word = f"config.CHECKPOINT.DIR={uuid.uuid4()}"
    with subprocess.Popen([sys.executable, "-c", script, word], start_new_session=True) as process:
        found = 0.0
        for _ in range(1000):
            found = cpu_seconds(word)
            if found >= 0.6:
                break
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    assert 0.6 <= found < 10  # counted in ticks of 0.01 s
    assert cpu_seconds(word) == 0


def test_partial_checkpoints__are_removed(tmp_path):
    save(tmp_path, 0)
    for name in ("phase1", "iteration7"):
        (tmp_path / f"model_{name}.torch").write_bytes(b"PK cut short")
    assert sorted(checkpoints(tmp_path)) == [1]
    remove_partial(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model_phase0.torch"]
