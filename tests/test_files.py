"""Files that are whole or not there."""

import os
import resource
import subprocess
import time

import pytest
import torch

from pirl_plugin.checkpoints.write import write_checkpoint
from pirl_plugin.files import (
    UNFINISHED,
    DiskFullError,
    atomic_write,
    link_relatively,
    remove_unfinished,
    unfinished_beside,
)


def test_replacing__takes_the_place_of_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    with atomic_write(path) as file:
        file.write(b"after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


def test_replacing__leaves_what_was_there_when_the_writing_fails(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(KeyError), atomic_write(path) as file:
        raise KeyError(file.write(b"half"))
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_write__says_which_disk_is_too_small(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("before")
    space = os.statvfs(tmp_path)
    more = space.f_bavail * space.f_frsize + 1
    with pytest.raises(DiskFullError, match=rf"{path} was not written.*too little space on the"):
        with atomic_write(path, needed=more) as file:
            file.write(b"never")
    assert path.read_text() == "before"


def test_write__says_what_a_file_size_limit_stopped(tmp_path):
    """The limit of a quota or ``ulimit -f`` is met in the middle of the writing."""
    path = tmp_path / "file"
    write_checkpoint({"weights": torch.zeros(10)}, path)
    before = path.read_bytes()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(DiskFullError, match=r"File too large on the disk .* it needs 4\.0 MB"):
            write_checkpoint({"weights": torch.zeros(1_000_000)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_remove_unfinished__takes_what_dead_processes_left_alone(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    of_alive = unfinished_beside(tmp_path / "model.torch")
    host, pid, birth, number = of_alive.name.removeprefix(UNFINISHED).rsplit(".", maxsplit=3)
    assert pid == str(os.getpid())
    of_dead = tmp_path / f"{UNFINISHED}{host}.{dead.pid}.{birth}.0"
    of_earlier = tmp_path / f"{UNFINISHED}{host}.{pid}.01234567.{number}"  # another container's
    elsewhere = tmp_path / f"{UNFINISHED}another.host.{dead.pid}.{birth}.0"
    old = tmp_path / f"{UNFINISHED}another.host.{dead.pid}.{birth}.1"
    users = tmp_path / "model_phase0.torch"
    for path in (of_dead, of_earlier, of_alive, elsewhere, old, users):
        path.write_text("")
    os.utime(old, (0, time.time() - 2 * 24 * 3600))
    remove_unfinished(tmp_path)
    assert set(tmp_path.iterdir()) == {of_alive, elsewhere, users}


def test_link__is_relative_and_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "out"
    folder.mkdir()
    for name in ("first", "second"):
        (folder / name).write_text(name)
        link_relatively((folder / name).relative_to(tmp_path), folder / "link")
        assert os.readlink(folder / "link") == name
    folder.rename(tmp_path / "moved")
    assert (tmp_path / "moved" / "link").read_text() == "second"
