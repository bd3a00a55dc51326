"""Reading: broken, special and large files; what workers share; a source without /dev/shm."""

import os
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from pirl_plugin.images import read
from pirl_plugin.images.sources import base
from pirl_plugin.images.sources.folder import FolderSource
from tests.helpers.images import save_grey


def test_unreadable__is_grey_counted_and_named_once(folder, caplog):
    (folder / "a" / "x.webp").write_bytes(b"")
    (folder / "b" / "1.jpg").write_bytes(b"no image")
    source = FolderSource(folder, grey_size=16)
    (folder / "a" / "y" / "9.bmp").unlink()
    for row in (0, 1, 3, 0, 1, 2):
        pixels, is_valid = source[row]
        assert is_valid == (row == 2)
        if row != 2:
            assert torch.equal(pixels, torch.full((3, 16, 16), 128, dtype=torch.uint8))
    assert source.num_unreadable == 3
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 3
    assert "x.webp: the file is empty (0 bytes)" in warnings[0]
    assert "No such file" in warnings[1]
    assert "cannot identify" in warnings[2]


def test_unreadable__names_that_are_no_text_fit_on_a_line_of_the_log(tmp_path, caplog):
    for name in (b"\xff\xe9.jpg", "é ü.jpg".encode(), b"two\nlines.jpg"):
        (tmp_path / os.fsdecode(name)).write_bytes(b"no image")
    list(FolderSource(tmp_path))
    named = [record.message for record in caplog.records if "A blank image" in record.message]
    assert sorted(line.split("/")[-1] for line in named) == [
        f"{name}.jpg: cannot identify image file (8 bytes). A blank image takes its place."
        for name in ("\\xff\\xe9", "two\\nlines", "é ü")
    ]
    assert "\n".join(named).encode().count(b"\n") == 2


def test_unreadable__special_files_are_named_and_never_waited_for(tmp_path, caplog):
    for name in ("a", "b", "c"):
        save_grey(tmp_path / "all" / f"{name}.jpg")
    os.mkfifo(tmp_path / "all" / "d.jpg")
    os.symlink("/dev/zero", tmp_path / "all" / "e.jpg")
    os.symlink(tmp_path, tmp_path / "all" / "f.jpg")
    source = FolderSource(tmp_path)
    valid = [is_valid for _, is_valid in source]  # would wait for ever, or fill the memory
    assert valid == [True] * 3 + [False] * (len(source) - 3)
    warnings = [record.message for record in caplog.records if "A blank image" in record.message]
    assert "d.jpg: cannot be read: it is not a regular file (a pipe" in warnings[0]
    assert "e.jpg: cannot be read: it is not a regular file" in warnings[1]


def test_unreadable__large_files_are_named_and_not_read(folder, monkeypatch, caplog):
    monkeypatch.setattr(read, "MAX_FILE_BYTES", 2**20)
    with open(folder / "b" / "1.jpg", "r+b") as file:
        file.truncate(3 * 2**20)
    assert not FolderSource(folder)[3][1]
    assert "1.jpg: cannot be read: the file has 3 MiB, more than the 1 that" in caplog.text


def test_unreadable__too_little_memory_is_named(folder, monkeypatch, caplog):
    def exhausted(data):
        raise MemoryError

    monkeypatch.setattr(base, "read_file", exhausted)
    assert not FolderSource(folder)[0][1]
    assert "x.webp: cannot be read: there is too little memory" in caplog.text


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_unreadable__of_workers_are_counted_here(method, folder):
    (folder / "b" / "1.jpg").write_bytes(b"no image")
    source = FolderSource(folder, grey_size=8)
    loader = DataLoader(source, batch_size=None, num_workers=1, multiprocessing_context=method)
    assert [is_valid for _, is_valid in loader].count(False) == 1
    assert source.num_unreadable == 1


def test_source__needs_no_shared_memory_of_torch(folder, monkeypatch):
    """A container's /dev/shm may be read-only; a run without workers does not need it."""

    def refuse(self, *args):
        raise RuntimeError("unable to open shared memory object: Read-only file system")

    monkeypatch.setattr(torch.Tensor, "share_memory_", refuse)
    assert FolderSource(folder)[0][1]


def test_source__pickled_elsewhere_is_a_copy(folder):
    (folder / "b" / "1.jpg").write_bytes(b"no image")
    source = FolderSource(folder)
    copy = pickle.loads(pickle.dumps(source))
    assert not copy[3][1]
    assert (copy.num_unreadable, source.num_unreadable) == (1, 0)
    assert copy.paths() == source.paths()


def test_source__without_labels_says_so(folder):
    source = base.ImageSource(folder, ["a/x.webp", "b/1.jpg"])
    with pytest.raises(ValueError, match="has no labels: expected a source with labels"):
        source.labels()
    labelled = base.ImageSource(folder, ["a/x.webp", "b/1.jpg"], labels=np.array([3, 4]))
    assert labelled.labels().tolist() == [3, 4]
