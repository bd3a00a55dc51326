"""A checkpoint that is not what was saved is refused, wherever the damage is."""

import os
import random

import pytest
import torch

from pirl_plugin.checkpoints.verify import DamagedError, open_checkpoint, verify


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model_phase0.torch"
    torch.manual_seed(0)
    model = {"weight": torch.randn(100, 10), "steps": torch.arange(3)}
    torch.save({"classy_state_dict": {"base_model": model}, "iteration": 7}, path)
    return path


def same(found, expected):
    found, expected = (c["classy_state_dict"]["base_model"] for c in (found, expected))
    return all(torch.equal(found[name], expected[name]) for name in expected)


def test_verify__finds_each_flipped_bit_that_changes_anything(saved):
    expected = torch.load(saved)
    whole = saved.read_bytes()
    found = 0
    positions = random.Random(0).sample(range(len(whole)), 400)
    for position in positions:
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        saved.write_bytes(damaged)
        try:
            assert same(verify(saved), expected), position
        except DamagedError:
            found += 1
    assert found > 250  # the others hit padding and dates


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.99, 0.9999])
def test_verify__finds_a_file_cut_short(saved, share):
    size = int(saved.stat().st_size * share)
    os.truncate(saved, size)
    with pytest.raises(DamagedError, match="it is empty" if size == 0 else "it cannot be loaded"):
        verify(saved)


def test_verify__refuses_what_no_run_can_go_on_from(saved):
    saved.write_bytes(b"garbage" * 100)
    with pytest.raises(DamagedError, match="it cannot be loaded"):
        verify(saved)
    torch.save({"weights": torch.zeros(2)}, saved)
    with pytest.raises(DamagedError, match="it holds no 'classy_state_dict'"):
        verify(saved)


def test_open__runs_no_code(saved, tmp_path):
    class Planted:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "planted"),)

    torch.save({"classy_state_dict": Planted()}, saved)
    with pytest.raises(DamagedError, match="Weights only load failed"):
        open_checkpoint(saved)
    assert not (tmp_path / "planted").exists()


def test_verify__takes_files_without_checksums_with_one_line(saved, caplog):
    content = torch.load(saved)
    caplog.set_level("INFO")
    torch.save(content, saved, _use_new_zipfile_serialization=False)
    assert same(verify(saved), content)
    assert [record.message for record in caplog.records] == [
        f"{saved} was saved without checksums: taken as it is"
    ]
