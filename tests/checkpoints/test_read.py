"""A checkpoint that is not whole is refused, by the names of what is wrong, and nothing written."""

import pickle
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from pirl_plugin.checkpoints.trunk import dictionaries
from pirl_plugin.export import export_checkpoint
from tests.helpers.export_files import PREFIX, bare, prefixed, small_trunk, vissl_checkpoint


def refused(source, tmp_path, match):
    out = tmp_path / "out.pth"
    with pytest.raises(ValueError, match=match) as stopped:
        export_checkpoint(source, out, "torchvision")
    assert str(source) in str(stopped.value)
    assert "weights_only" not in str(stopped.value)  # torch's advice, of several lines
    assert not out.exists()


def with_trunk(tmp_path, **changes):
    """A checkpoint whose trunk has tensors changed, added or (None) taken away."""
    trunk = small_trunk(50)
    for name, tensor in changes.items():
        name = name.replace("__", ".")
        if tensor is None:
            del trunk[name]
        else:
            trunk[name] = tensor
    torch.save(vissl_checkpoint(trunk), tmp_path / "in.torch")
    return tmp_path / "in.torch"


@pytest.mark.parametrize("name", ["conv1.weight", "layer4.2.conv3.weight", "bn1.running_var"])
def test_missing_tensor(name, tmp_path):
    source = with_trunk(tmp_path, **{PREFIX + name: None})
    refused(source, tmp_path, rf"not a whole trunk.*ResNet-50.*1 of 265 missing: {name}$")


def test_missing_stage__names_the_first_and_counts_the_rest(tmp_path):
    gone = {n: None for n in small_trunk(50) if ".layer4." in n}
    expected = r"\d+ of 265 missing: layer4\.0\..* and \d+ more"
    refused(with_trunk(tmp_path, **gone), tmp_path, expected)


@pytest.mark.parametrize(
    "name", ["layer4.3.conv1.weight", "layer5.0.conv1.weight", "layer1.0.conv1.bias", "gate.weight"]
)
def test_extra_tensor(name, tmp_path):
    source = with_trunk(tmp_path, **{PREFIX + name: torch.zeros(3, 3)})
    refused(source, tmp_path, rf"1 left over: {name}$")


def test_extra_tensor__beside_the_trunks_own_prefix(tmp_path):
    source = with_trunk(tmp_path, stray=torch.zeros(3))
    refused(source, tmp_path, "1 left over: stray$")


def test_extra_tensor__in_a_plain_state_dict(tmp_path):
    torch.save({**bare(small_trunk()), "gate.weight": torch.zeros(3)}, tmp_path / "in.pth")
    refused(tmp_path / "in.pth", tmp_path, r"1 left over: gate\.weight$")


def test_wrong_shape(tmp_path):
    source = with_trunk(tmp_path, **{f"{PREFIX}layer3.1.conv2.weight": torch.zeros(3, 3)})
    expected = r"1 of another shape: layer3\.1\.conv2\.weight \(3, 3\), expected \(32, 32, 3, 3\)"
    refused(source, tmp_path, expected)


def test_wrong_names_on_both_sides(tmp_path):
    trunk = small_trunk(50)
    trunk[f"{PREFIX}layer2.0.cnv1.weight"] = trunk.pop(f"{PREFIX}layer2.0.conv1.weight")
    torch.save(vissl_checkpoint(trunk), tmp_path / "in.torch")
    expected = r"1 of 265 missing: layer2\.0\.conv1\.weight; 1 left over: layer2\.0\.cnv1\.weight$"
    refused(tmp_path / "in.torch", tmp_path, expected)


def test_values_that_are_not_finite(tmp_path):
    source = with_trunk(tmp_path, **{f"{PREFIX}bn1.weight": torch.full((8,), float("nan"))})
    refused(source, tmp_path, r"not finite, in bn1\.weight$")


def test_heads_only(tmp_path):
    checkpoint = vissl_checkpoint({})
    torch.save(checkpoint, tmp_path / "in.torch")
    refused(tmp_path / "in.torch", tmp_path, r"no ResNet trunk.*it has .*0\.clf\.0\.weight")


@pytest.mark.parametrize("cut", [0.3, 0.999])
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "older format"])
def test_truncated_file(cut, zipped, tmp_path):
    source = tmp_path / "in.torch"
    torch.save(vissl_checkpoint(small_trunk()), source, _use_new_zipfile_serialization=zipped)
    content = source.read_bytes()
    source.write_bytes(content[: int(cut * len(content))])
    refused(source, tmp_path, "damaged or something else")


def test_flipped_bit(tmp_path):
    source = with_trunk(tmp_path)
    content = bytearray(source.read_bytes())
    content[len(content) // 2] ^= 1
    source.write_bytes(content)
    refused(source, tmp_path, "another check sum")


def test_archive_without_check_sums__is_read(tmp_path):
    trunk, before = small_trunk(), torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(vissl_checkpoint(trunk), tmp_path / "in.torch")
    finally:
        torch.serialization.set_crc32_options(before)
    assert export_checkpoint(tmp_path / "in.torch", tmp_path / "out.pth", "torchvision").depth == 18


def zip_of_text(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "not torch")


NONE = "is no checkpoint: expected a file of torch, of Detectron2, or of safetensors, "


@pytest.mark.parametrize(
    ("write", "match"),
    [
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_text("hello, not a checkpoint"), NONE),
        (lambda path: path.write_bytes(bytes(range(256)) * 40), NONE),
        (lambda path: Image.new("RGB", (64, 64)).save(path, "JPEG"), NONE),
        (lambda path: path.write_bytes(b"\x80\x02" + bytes(500)), "damaged or something else"),
        (zip_of_text, NONE),
        (lambda path: np.save(path.open("wb"), np.zeros(3)), NONE),
        (lambda path: path.write_bytes(pickle.dumps({"conv1_w": 1})), "Caffe2"),
        (lambda path: path.write_bytes(pickle.dumps(zipfile.ZipInfo())), "not of arrays alone"),
        (lambda path: torch.jit.script(torch.nn.ReLU()).save(path), "safe loading refuses TorchS"),
        (lambda path: torch.save({}, path), "it has no tensors"),
        (lambda path: torch.save([1, 2], path), "holds a list: expected a dictionary"),
        (lambda path: torch.save({"type": "shard_list"}, path), "in shards.*convert_sharded"),
    ],
    ids="empty text bytes jpeg pickled zip npy caffe2 class script {} list shards".split(),
)
def test_not_a_checkpoint(write, match, tmp_path):
    write(tmp_path / "in.torch")
    refused(tmp_path / "in.torch", tmp_path, match)


def test_folder(tmp_path):
    with pytest.raises(IsADirectoryError, match=r"is a folder.*this one holds none"):
        export_checkpoint(tmp_path, tmp_path / "out.pth", "torchvision")
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(IsADirectoryError, match=r"for instance .*model\.safetensors$"):
        export_checkpoint(tmp_path, tmp_path / "out.pth", "torchvision")


def test_damaged_safetensors_and_pickle(tmp_path):
    (tmp_path / "in.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0nonsense")
    refused(tmp_path / "in.safetensors", tmp_path, "damaged or something else")
    torch.save(vissl_checkpoint(small_trunk()), tmp_path / "in.torch")
    export_checkpoint(tmp_path / "in.torch", tmp_path / "half.pkl", "detectron2")
    content = (tmp_path / "half.pkl").read_bytes()
    (tmp_path / "half.pkl").write_bytes(content[: len(content) // 2])
    refused(tmp_path / "half.pkl", tmp_path, "damaged or something else")


def test_pickle_that_would_run_code__is_not_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    content = {"model": prefixed(small_trunk(), ""), "__author__": Bomb()}
    (tmp_path / "in.pkl").write_bytes(pickle.dumps(content))
    refused(tmp_path / "in.pkl", tmp_path, "not of arrays alone")
    assert not (tmp_path / "ran").exists()


def test_dictionaries__that_hold_themselves_are_each_looked_at_once():
    inner = {"weight": torch.ones(2)}
    outer = {"model": inner, "again": inner}
    inner["parent"] = outer
    assert [keys for keys, _ in dictionaries(outer)] == ["model.", "again."]
