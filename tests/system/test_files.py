"""Files are either complete or absent."""

import errno
import os
import subprocess
import sys

import pytest
import torch

from pirl_plugin.system.failures import FAILURE_FILE, record
from pirl_plugin.system.files import (
    LOCK,
    UNFINISHED,
    atomic_write,
    claim_folder,
    create,
    link_relatively,
    locked,
    read_json_lines,
    remove,
    remove_unfinished,
    write_text,
)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("by_torch", [False, True])
def test_failed_write__keeps_old_file_and_names_cause(number, by_torch, tmp_path):
    path = tmp_path / "file"
    path.write_text("before")

    class Failing:
        writes = 0

        def write(self, data):
            self.writes += 1
            if self.writes > by_torch:  # torch replaces the error of a later write with its own
                raise OSError(number, os.strerror(number))
            return len(data)

    with pytest.raises(OSError, match=f"{os.strerror(number)}.*file") as raised:
        with atomic_write(path) as file:
            torch.save({"a": torch.ones(3)}, Failing()) if by_torch else Failing().write(file)
    assert raised.value.errno == number
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["file"]


def test_killed_write__leaves_file_for_next_start_to_remove(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    code = (
        "import os; from pirl_plugin.system.files import atomic_write\n"
        f"with atomic_write({str(path)!r}) as file:\n"
        "    file.write(b'half'); file.flush(); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert path.read_text() == "before"
    assert len(os.listdir(tmp_path)) == 2
    remove_unfinished(tmp_path)
    assert os.listdir(tmp_path) == ["file"]
    for _ in range(2):  # absent the second time
        remove(path)
    assert os.listdir(tmp_path) == []


def test_link__survives_move_and_replaces_dangling_link(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "file").write_text("content")
    (folder / "link").symlink_to("gone")
    link_relatively(folder / "file", folder / "link")
    folder.rename(tmp_path / "b")
    assert (tmp_path / "b" / "link").read_text() == "content"


def test_claim__refuses_different_run(tmp_path):
    for _ in range(2):
        claim_folder(tmp_path / "out", {"seed": 0})
    with pytest.raises(ValueError, match=r"the run with seed 0 \(now 1\)"):
        claim_folder(tmp_path / "out", {"seed": 1})


def test_json_lines__skip_incomplete_lines(tmp_path):
    assert read_json_lines(tmp_path / "log") == []
    (tmp_path / "log").write_text('{"a": 1}\n{"a": {"b\n3\n{"a": 2}\n')
    assert [line["a"] for line in read_json_lines(tmp_path / "log")] == [1, 2]


def test_outputs__are_not_written_through_planted_links(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("before")
    out = tmp_path / "out"
    out.mkdir()
    for name in (f"{UNFINISHED}a.csv", "a.csv", f"{UNFINISHED}b", LOCK, FAILURE_FILE):
        (out / name).symlink_to(victim)
    os.link(victim, out / f"{UNFINISHED}c")
    for name in ("a.csv", "c"):
        write_text(out / name, "new")
    with create(out / f"{UNFINISHED}b") as file:
        file.write(b"new")
    record("failed", "details", out)
    assert (out / FAILURE_FILE).stat().st_nlink == 1
    with pytest.raises(OSError, match="symbolic links"), locked(out, "OUT"):
        pass
    assert victim.read_text() == "before"
