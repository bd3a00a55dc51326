"""The host's writer: whole files, a link that survives a move, and our hook around it."""

import os

import pytest
import torch
from vissl.utils.checkpoint import CheckpointWriter

from pirl_plugin.vissl.hooks.checkpoint import HOOKS


def test_writer__writes_whole_files_and_calls_the_hook_of_the_folder(tmp_path, monkeypatch):
    calls = []

    class Hook:
        def prepare(self, content, name):
            calls.append(("prepare", name))
            return name != "model_phase1.torch"

        def record(self, content, name):
            calls.append(("record", name))

    monkeypatch.setitem(HOOKS, os.path.realpath(tmp_path), Hook())
    for phase in (0, 1):
        writer = CheckpointWriter(str(tmp_path), False, "phase", phase, "disk")
        writer.save_consolidated_checkpoint({"a": torch.ones(2)})
    assert calls == [
        ("prepare", "model_phase0.torch"),
        ("record", "model_phase0.torch"),
        ("prepare", "model_phase1.torch"),
    ]
    assert sorted(os.listdir(tmp_path)) == ["checkpoint.torch", "model_phase0.torch"]
    assert os.readlink(tmp_path / "checkpoint.torch") == "model_phase0.torch"
    before = (tmp_path / "model_phase0.torch").read_bytes()
    monkeypatch.delitem(HOOKS, os.path.realpath(tmp_path))
    monkeypatch.setattr(torch, "save", lambda content, file: 1 / file.write(b""))
    with pytest.raises(ZeroDivisionError):
        CheckpointWriter(str(tmp_path), False, "phase", 0, "disk").save_consolidated_checkpoint({})
    assert (tmp_path / "model_phase0.torch").read_bytes() == before
