"""What a run costs: the CPU time of its processes, noted at each checkpoint that it writes.

CPU seconds, user and system, of the process and all its descendants depend less on what else the
machine does than wall-clock seconds. Both are kept in the run's folder, so that a run that was
stopped counts what led to the checkpoint it goes on from, and not what was lost.
"""

from __future__ import annotations

import json
import os
import threading
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from pirl_plugin.checkpoints.host_checkpoint import CHECKPOINT_NAME
from pirl_plugin.utils.hydra_overrides import quoted
from pirl_plugin.utils.outputs import write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

_INTERVAL = 1.0
_NOTHING = {"cpu": 0.0, "wall": 0.0}
_PROC = Path("/proc")


class _Noted(TypedDict):
    """What ``clock.json`` holds."""

    # ``cpu`` and ``wall`` seconds before this start, and its ``time``; None where nobody saw them
    start: dict[str, float] | None
    marks: dict[int, dict[str, float]]  # epoch → ``cpu`` and ``wall`` seconds
    inside: dict[int, dict[str, float]]  # training step within an epoch → the same


class Clock:
    """Watches a run's folder while the run lives; a context manager around it.

    Args:
        folder: the host's ``CHECKPOINT.DIR``.
        keep: epochs whose checkpoints stay; others, and those within an epoch, go when the next is
            whole.
        under_way: whether the run was started before, by a process that did not outlive it.
    """

    def __init__(self, folder: Path, keep: list[int], under_way: bool = False) -> None:
        self._folder, self._keep = folder, set(keep)
        self._word = f"config.CHECKPOINT.DIR={quoted(folder)}"  # of its command line
        self._file = folder / "clock.json"
        self._noted = _read(self._file)
        if not under_way:
            there, middle = checkpoints(folder), _inside(folder)
            marks = {epoch: mark for epoch, mark in self._noted["marks"].items() if epoch in there}
            inside = {step: mark for step, mark in self._noted["inside"].items() if step in middle}
            reached = _cost(marks, max(there, default=0))
            before = [*inside.values()] if reached is None else [reached, *inside.values()]
            last = max(before, key=lambda m: m["wall"], default=None)
            start = {**last, "time": time.time()} if last else None
            self._noted = {"start": start, "marks": marks, "inside": inside}
        self._used = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Clock:
        """Begin to watch."""
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Note what was written last."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            stopping = self._stop.wait(_INTERVAL)
            # 0 once the processes have ended
            self._used = max(self._used, cpu_seconds(self._word))
            self._look()
            if stopping:
                return

    def _look(self) -> None:
        there, inside = checkpoints(self._folder), _inside(self._folder)
        start, marks = self._noted["start"], self._noted["marks"]
        new_epoch = max(there, default=0) > max(marks, default=0)
        new_step = max(inside, default=0) > max(self._noted["inside"], default=0)
        if not new_epoch and not new_step:
            return
        if start is not None:
            cost = {"cpu": start["cpu"] + self._used}
            cost["wall"] = start["wall"] + time.time() - start["time"]
            cost = {name: round(value, 2) for name, value in cost.items()}
            if new_epoch:
                # Of several at once, nobody was there to see the others: `costs` fills them in.
                marks[max(there)] = cost
            if new_step:
                self._noted["inside"][max(inside)] = cost
            self._write()
        over = [there[epoch] for epoch in there if epoch < max(there) and epoch not in self._keep]
        over += [inside[step] for step in inside if not new_step or step < max(inside)]
        for file in over:
            file.unlink(missing_ok=True)

    def _write(self) -> None:
        write_json(self._file, self._noted)


def _read(file: Path) -> _Noted:
    if not file.is_file():
        return {"start": {**_NOTHING, "time": time.time()}, "marks": {}, "inside": {}}
    noted = json.loads(file.read_text())  # whose numbers are strings
    marks, inside = (
        {int(number): mark for number, mark in noted.get(kind, {}).items()}  # earlier: no inside
        for kind in ("marks", "inside")
    )
    return {"start": noted["start"], "marks": marks, "inside": inside}


def checkpoints(folder: Path) -> dict[int, Path]:
    """Epoch → its checkpoint, of those that are whole (an archive's directory is written last)."""
    return {number + 1: file for number, file in _whole(folder, "phase")}


def _inside(folder: Path) -> dict[int, Path]:
    """Training step → the whole checkpoint that was saved after it, in the middle of an epoch."""
    return dict(_whole(folder, "iteration"))


def _whole(folder: Path, kind: str) -> Iterator[tuple[int, Path]]:
    for file in folder.glob("model_*.torch"):
        name = CHECKPOINT_NAME.fullmatch(file.name)
        if name and name["kind"] == kind and zipfile.is_zipfile(file):
            yield int(name["number"]), file


def remove_partial(folder: Path) -> None:
    """Remove checkpoints that were cut short: the host would go on from one, and fail."""
    for file in folder.glob("model_*.torch"):
        if CHECKPOINT_NAME.fullmatch(file.name) and not zipfile.is_zipfile(file):
            file.unlink()


def costs(folder: Path, epochs: list[int]) -> dict[int, dict[str, float] | None]:
    """Epoch → ``cpu`` and ``wall`` seconds from the run's start to its checkpoint.

    Epochs take equally long: what was not seen lies on the line between what was, and beyond the
    last that was seen on the line from the start through that. None where nothing was seen.
    """
    marks = _read(folder / "clock.json")["marks"]
    return {epoch: _cost(marks, epoch) for epoch in epochs}


def _cost(seen: dict[int, dict[str, float]], epoch: int) -> dict[str, float] | None:
    marks = {0: _NOTHING, **seen}
    if epoch in marks:
        return marks[epoch]
    if not seen:
        return None
    before = max(other for other in marks if other < epoch)
    if before == max(seen):
        return {name: value * epoch / before for name, value in marks[before].items()}
    after = min(other for other in marks if other > epoch)
    share = (epoch - before) / (after - before)
    return {
        name: value + share * (marks[after][name] - value) for name, value in marks[before].items()
    }


def marked(folder: Path, steps_per_epoch: int) -> dict[int, dict[str, float]]:
    """Training step → ``cpu`` and ``wall`` seconds to the checkpoint after it, of those seen."""
    noted = _read(folder / "clock.json")
    epochs = {epoch * steps_per_epoch: mark for epoch, mark in noted["marks"].items()}
    return {**noted["inside"], **epochs}


def cpu_seconds(argument: str) -> float:
    """User and system seconds of the processes with an argument, and of all their descendants.

    0 where the system has no ``/proc``; there, wall-clock time is all that is known.

    Args:
        argument: a word of their command line.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    mine: set[int] = set()
    for entry in _PROC.iterdir() if (_PROC / "self" / "stat").is_file() else ():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        try:
            # After the command's name, which may hold anything: state, parent, …
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if os.fsencode(argument) in (entry / "cmdline").read_bytes().split(b"\0"):
                mine.add(pid)
        except OSError:  # it has ended
            continue
        parents[pid] = int(fields[1])
        ticks[pid] = sum(map(int, fields[11:15]))  # its own and its waited-for children's
    while new := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= new
    return sum(ticks[pid] for pid in mine) / os.sysconf("SC_CLK_TCK")
