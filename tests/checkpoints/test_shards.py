"""Shards in a folder: whole or not there, checked, and read without running anything in them."""

import copyreg
import json
import os
import pickle
import shutil
import warnings
import zlib
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch.distributed import checkpoint

from pirl_plugin.checkpoints.run_folder import MANIFEST
from pirl_plugin.checkpoints.shards import check_shards, load_shards, read_shapes, save_shards
from pirl_plugin.checkpoints.verify import DamagedError
from pirl_plugin.checkpoints.write import NonFiniteStateError
from pirl_plugin.files import DiskFullError
from pirl_plugin.sharded_bank import ShardedMemoryBank
from tests.helpers.processes import run_in_processes


def state(value=1.0):
    return {"rows": torch.full((50, 4), value), "visited": torch.ones(50, dtype=torch.bool)}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "memory_bank" / "step_7"
    save_shards(state(), folder, needed=1000)
    return folder


def test_save__replaces_what_is_there_in_one_step(folder):
    check_shards(folder)
    save_shards(state(2.0), folder, needed=1000)
    check_shards(folder)
    found = state(0.0)
    load_shards(found, folder)
    assert torch.equal(found["rows"], state(2.0)["rows"])
    assert list(folder.parent.iterdir()) == [folder]


def test_save__leaves_what_was_there_when_it_cannot_write(folder, monkeypatch):
    with pytest.raises(NonFiniteStateError, match=r"step_7 was not saved.*\(rows\)"):
        save_shards(state(float("inf")), folder, needed=1000)
    with pytest.raises(DiskFullError, match="too little space"):
        save_shards(state(2.0), folder, needed=1 << 60)

    def full(*args, **kwargs):
        error = OSError(28, "No space left on device")
        raise checkpoint.CheckpointException("", {0: (error, None)})

    monkeypatch.setattr(checkpoint, "save", full)
    with pytest.raises(DiskFullError, match=r"No space left on device on the disk .* give the sam"):
        save_shards(state(2.0), folder, needed=1000)
    found = state(0.0)
    check_shards(folder)
    load_shards(found, folder)
    assert torch.equal(found["rows"], state()["rows"])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", MANIFEST])
@pytest.mark.parametrize("damage", [flip, cut, os.remove])
def test_check__names_what_is_damaged(folder, name, damage):
    if name == MANIFEST and damage is os.remove:  # as an older version left it
        name, damage = ".metadata", cut
        (folder / MANIFEST).unlink()
    damage(folder / name)
    with pytest.raises(DamagedError, match=rf"{folder}/{name}"):
        check_shards(folder)


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata"])
@pytest.mark.parametrize("damage", [cut, os.remove])
def test_check__finds_older_shards_that_are_cut_short(folder, name, damage):
    (folder / MANIFEST).unlink()
    damage(folder / name)
    with pytest.raises(DamagedError, match=rf"{folder}/{name}"):
        check_shards(folder)


def test_check__says_that_the_bank_is_not_there(tmp_path):
    with pytest.raises(DamagedError, match="step_3 is not there: bring it along"):
        check_shards(tmp_path / "step_3")


def test_older_shards__load_with_one_line(tmp_path, caplog):
    caplog.set_level("INFO")
    folder = tmp_path / "step_3"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpoint.save(state(3.0), checkpoint_id=str(folder))
    check_shards(folder)
    found = state(0.0)
    load_shards(found, folder)
    assert torch.equal(found["rows"], state(3.0)["rows"])
    assert [r.message for r in caplog.records if r.name == "root"] == [
        f"{folder} was saved without checksums: taken as it is"
    ]


class Planted:
    """Pickled, it makes a folder when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("inside", [False, True])
def test_metadata__that_was_planted_runs_nothing(folder, tmp_path, inside):
    planted = Planted(tmp_path / "planted")
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    metadata.planner_data = planted
    (folder / ".metadata").write_bytes(pickle.dumps(metadata if inside else planted))
    (folder / MANIFEST).unlink()
    for read in (check_shards, read_shapes, lambda f: load_shards(state(), f)):
        with pytest.raises(DamagedError, match=r"it holds posix\.mkdir"):
            read(folder)
    assert not (tmp_path / "planted").exists()


class ByName(pickle.Pickler):
    """Pickles members of enumerations as Python 3.11.2, Debian 12's, does."""

    dispatch_table: ClassVar = copyreg.dispatch_table | {
        checkpoint.metadata._MEM_FORMAT_ENCODING: lambda m: (getattr, (type(m), m.name))
    }


def test_metadata__of_python_3_11_2_is_read(folder):
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    with (folder / ".metadata").open("wb") as file:
        ByName(file).dump(metadata)
    assert b"getattr" in (folder / ".metadata").read_bytes()
    assert read_shapes(folder) == {"rows": (50, 4), "visited": (50,)}
    (folder / MANIFEST).unlink()
    found = state(0.0)
    load_shards(found, folder)
    assert torch.equal(found["rows"], state()["rows"])


class Attribute:
    """Pickled, it is an attribute of one of torch's classes."""

    def __reduce__(self):
        return getattr, (torch.Size, "__class__")


def test_metadata__takes_no_other_attributes(folder):
    (folder / ".metadata").write_bytes(pickle.dumps(Attribute()))
    with pytest.raises(DamagedError, match="it asks for __class__, which metadata of tensors does"):
        read_shapes(folder)


def test_metadata__of_more_than_tensors_is_refused(folder):
    """The planner loads other entries with pickle."""
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    metadata.state_dict_metadata["visited"] = checkpoint.metadata.BytesStorageMetadata()
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(DamagedError, match="BytesStorageMetadata, which metadata of"):
        read_shapes(folder)
    metadata.state_dict_metadata["visited"] = SimpleNamespace
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(DamagedError):
        read_shapes(folder)


def _across(rank, world_size, folder):
    bank = ShardedMemoryBank(50, 4, seed=3)
    bank.save(folder)
    try:
        bank.rows[0] = float("nan") if rank == 1 else 0
        bank.save(folder)
    except NonFiniteStateError as error:
        return rank, str(error)


def test_shards_of_several_ranks__fail_on_all_where_one_is_not_finite(tmp_path):
    folder = tmp_path / "memory_bank" / "step_1"
    errors = run_in_processes(_across, 3, folder)
    assert all("was not saved" in error for _, error in errors)
    check_shards(folder)
    assert {p.name for p in folder.iterdir()} == {
        ".metadata", MANIFEST, *(f"__{rank}_0.distcp" for rank in range(3))
    }  # fmt: skip
    shutil.rmtree(folder)


def test_check__looks_at_no_file_outside_the_folder(folder):
    outside = folder.parent / "outside"
    outside.write_bytes(b"abc")
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["../outside"] = [3, zlib.crc32(b"abc")]
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(DamagedError, match=r"/\.\./outside is missing"):
        check_shards(folder)
