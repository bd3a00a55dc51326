"""Files are complete or absent."""

import errno
import os
import subprocess
import sys

import pytest
import torch

from pirl_plugin.system.failures import Refused
from pirl_plugin.system.files import (
    atomic_write,
    check_space,
    claim_folder,
    link_relatively,
    read_json_lines,
    remove,
    remove_unfinished,
)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("by_torch", [False, True])
def test_failed_write__keeps_what_was_there_and_names_the_cause(number, by_torch, tmp_path):
    path = tmp_path / "file"
    path.write_text("before")

    class Failing:
        writes = 0

        def write(self, data):
            self.writes += 1
            if self.writes > by_torch:  # torch hides a failure of a later write behind its own
                raise OSError(number, os.strerror(number))
            return len(data)

    with pytest.raises(OSError, match=f"{os.strerror(number)}.*file") as raised:
        with atomic_write(path) as file:
            torch.save({"a": torch.ones(3)}, Failing()) if by_torch else Failing().write(file)
    assert raised.value.errno == number
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["file"]


def test_kill_while_writing__leaves_what_the_next_start_removes(tmp_path):
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
    for _ in range(2):  # the second time, it is not there
        remove(path)
    assert os.listdir(tmp_path) == []


def test_link__survives_a_move_and_replaces_a_dangling_one(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "file").write_text("content")
    (folder / "link").symlink_to("gone")
    link_relatively(folder / "file", folder / "link")
    folder.rename(tmp_path / "b")
    assert (tmp_path / "b" / "link").read_text() == "content"


def test_claim__refuses_another_run(tmp_path):
    for _ in range(2):
        claim_folder(tmp_path / "out", {"seed": 0})
    with pytest.raises(ValueError, match=r"the run with seed 0 \(now 1\)"):
        claim_folder(tmp_path / "out", {"seed": 1})


def test_space__that_is_missing_names_the_folder_and_the_remedy(tmp_path):
    check_space(tmp_path, 1, "")
    with pytest.raises(Refused, match=f"{tmp_path} has .* MB of free space, .* Set TMPDIR."):
        check_space(tmp_path, 1 << 60, "Set TMPDIR.")


def test_json_lines__of_a_log_that_was_cut_short(tmp_path):
    assert read_json_lines(tmp_path / "log") == []
    (tmp_path / "log").write_text('{"a": 1}\n{"a": {"b\n3\n{"a": 2}\n')
    assert [line["a"] for line in read_json_lines(tmp_path / "log")] == [1, 2]
