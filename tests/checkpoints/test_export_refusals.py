"""Exports that are refused, that fail, or that need trust."""

import numpy as np
import pytest
import torch
import torchvision

from pirl_plugin.checkpoints import formats
from pirl_plugin.checkpoints.timm_trunk import find_any_trunk
from pirl_plugin.checkpoints.trunk import DESCRIPTION
from pirl_plugin.export import export_checkpoint
from tests.helpers.export_files import (
    bare,
    same,
    save,
    small_trunk,
    vissl_checkpoint,
    weights,
)


class Run:
    """An object that safe loading refuses."""


def test_export__asks_before_it_runs_code_in_a_file(tmp_path):
    trunk = small_trunk()
    source = save({"state_dict": bare(trunk), "args": Run()}, tmp_path / "in.torch")
    out = tmp_path / "out.pth"
    with pytest.raises(ValueError, match=r"refuses .*Run.*--trust-pickle"):
        export_checkpoint(source, out, "torchvision")
    export_checkpoint(source, out, "torchvision", trust_pickle=True)
    assert same(torch.load(out), bare(trunk))


@pytest.mark.filterwarnings("ignore:.torch.jit.(script|save). is deprecated")
def test_export__refuses_torchscript_in_one_sentence(tmp_path, recwarn):
    """torch's own warning, which names a line of this package, is not shown beside it."""
    source = tmp_path / "scripted.pt"
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), source)
    with pytest.raises(ValueError, match=r"refuses TorchScript\..*--trust-pickle"):
        export_checkpoint(source, tmp_path / "out.pth", "torchvision")
    assert not [found for found in recwarn if "torch.load" in str(found.message)]


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "older format"])
def test_export__takes_arrays_without_being_asked_for_trust(zipped, tmp_path):
    trunk, out = small_trunk(), tmp_path / "out.pth"
    arrays = {n: t.numpy() for n, t in weights(trunk).items()}
    content = {"model_state_dict": arrays, "top_1": np.float64(63.6), "steps": np.int64(3)}
    source = save(content, tmp_path / "in.torch", _use_new_zipfile_serialization=zipped)
    export_checkpoint(source, out, "torchvision")
    assert same(torch.load(out), weights(trunk))


def test_export__takes_whole_modules_from_trusted_files(tmp_path):
    out, model = tmp_path / "out.pth", torchvision.models.resnet18()
    source = save(model, tmp_path / "module.torch")
    found = export_checkpoint(source, out, "torchvision", trust_pickle=True)
    assert set(found.ignored) == {"fc.weight", "fc.bias"}
    assert torch.equal(torch.load(out)["conv1.weight"], model.conv1.weight)


def test_small_stem__goes_to_torch_and_not_to_detectron2(tmp_path):
    source = save(vissl_checkpoint(small_trunk(10, SMALL_STEM=True)), tmp_path / "in.torch")
    found = export_checkpoint(source, tmp_path / "out.pth", "torchvision")
    assert found.title == "ResNet-10 of width 0.125, 3×3 stem"
    with pytest.raises(ValueError, match=r"Detectron2 has no ResNet-10 .*7×7"):
        export_checkpoint(source, tmp_path / "out.pkl", "detectron2")
    assert not (tmp_path / "out.pkl").exists()


def test_failed_write__leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    source = save(vissl_checkpoint(small_trunk()), tmp_path / "in.torch")
    (tmp_path / "out.pkl").write_bytes(b"of before")

    def full_disk(content, file, protocol):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(formats.pickle, "dump", full_disk)
    with pytest.raises(OSError, match="No space left"):
        export_checkpoint(source, tmp_path / "out.pkl", "detectron2")
    assert (tmp_path / "out.pkl").read_bytes() == b"of before"
    assert {p.name for p in tmp_path.iterdir()} == {"in.torch", "out.pkl"}


def test_export__refuses_names_that_readers_would_not_know(tmp_path):
    source = save(vissl_checkpoint(small_trunk()), tmp_path / "in.pth")
    with pytest.raises(ValueError, match=r"OUT = .*out\.pth: expected a name that ends in \.pkl"):
        export_checkpoint(source, tmp_path / "out.pth", "detectron2")
    with pytest.raises(ValueError, match="to = 'onnx': expected one of detectron2, torchvision"):
        export_checkpoint(source, tmp_path / "out.onnx", "onnx")
    with pytest.raises(ValueError, match="expected another file than the checkpoint"):
        export_checkpoint(source, source, "torchvision")


def test_out__in_a_folder_that_cannot_be_made(tmp_path):
    """It was found out after the trunk was read."""
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"a folder to write to, and '.*file' is a file"):
        export_checkpoint("missing.torch", tmp_path / "file" / "out.pth", "torchvision")


def test_results__without_a_model_card_to_write_them_on(tmp_path):
    with pytest.raises(ValueError, match="expected none with to = 'torchvision'"):
        export_checkpoint(
            tmp_path / "in.pth", tmp_path / "out.pth", "torchvision", results=["missing.json"]
        )


def test_two_networks_of_timm__are_named():
    """The first was taken without a word."""
    described = torch.zeros(4)
    state = {f"members.{i}.{DESCRIPTION}": described for i in range(2)}
    with pytest.raises(ValueError, match=r"2 trunks, at .*members\.0.*members\.1.*: take one"):
        find_any_trunk({"model": state}, "file")


def test_export__does_not_write_over_a_text_of_the_users(tmp_path):
    source, out = save(bare(small_trunk()), tmp_path / "in.pth"), tmp_path / "out.pth"
    notes = tmp_path / "out.pth.txt"
    notes.write_text("mine")
    with pytest.raises(ValueError, match=r"out\.pth: expected no .*out\.pth\.txt, into which"):
        export_checkpoint(source, out, "torchvision")
    assert notes.read_text() == "mine"
    notes.unlink()
    for _ in range(2):  # its own is replaced with the file
        export_checkpoint(source, out, "torchvision")
    assert "torch.load" in notes.read_text()
