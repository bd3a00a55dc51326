"""Read files without executing code from them; refuse damaged ones."""

import argparse
import os
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save, save_file

from pirl_plugin.checkpoints.read import read_checkpoint


class Planted:
    def __reduce__(self):
        return os.mkdir, ("planted",)


@pytest.mark.parametrize("write", ["torch", "older torch", "pickle"])
def test_planted_code__is_not_executed(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "in.pth"
    content = {"model": {"a": np.ones(2)}, "planted": Planted()}
    if write in ("torch", "older torch"):
        torch.save(content, file, _use_new_zipfile_serialization=write == "torch")
    else:
        file.write_bytes(pickle.dumps(Planted()))
    with pytest.raises(ValueError, match=r"in\.pth is damaged.* load it with torch\.load"):
        read_checkpoint(file)
    assert not (tmp_path / "planted").exists()


def test_formats__are_recognized_by_content(tmp_path):
    ones = torch.ones(2)
    save_file({"a": ones}, tmp_path / "in.pth")
    assert torch.equal(read_checkpoint(tmp_path / "in.pth")["a"], ones)
    # DINO, MAE and others save the script's options and NumPy numbers.
    more = {"a": ones, "args": argparse.Namespace(lr=0.1), "loss": np.float64(3)}
    torch.save(more, tmp_path / "in.pth")
    assert torch.equal(read_checkpoint(tmp_path / "in.pth")["a"], ones)


def test_damage__is_found(tmp_path):
    file = tmp_path / "in.pth"
    torch.save({"a": torch.ones(100_000)}, file)
    whole = file.read_bytes()
    tensors = save({"a": torch.ones(9)})
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for content in (b"", b"text", whole[: len(whole) // 2], bytes(flipped), tensors[:20]):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"in\.pth is damaged or not .*\. Copy it again\.$"):
            read_checkpoint(file)
    torch.save([1], file)
    with pytest.raises(ValueError, match=r"contains a list, not a dictionary"):
        read_checkpoint(file)
    with pytest.raises(ValueError, match=r"is a folder. Choose a file in it"):
        read_checkpoint(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"No such file .*other\.pth"):
        read_checkpoint(tmp_path / "other.pth")
