"""What is exported has the trunk's bits, from any layout and in any format."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from safetensors.torch import load_file, save_file

from pirl_plugin.checkpoints import formats
from pirl_plugin.checkpoints.export_command import main
from pirl_plugin.checkpoints.names import to_detectron2, to_torchvision
from pirl_plugin.checkpoints.shapes import expected_shapes
from pirl_plugin.checkpoints.trunk import find_trunk
from pirl_plugin.export import export_checkpoint
from tests.helpers.export_files import (
    PREFIX,
    bare,
    prefixed,
    same,
    save,
    small_trunk,
    vissl_checkpoint,
    weights,
)

ROOT = Path(__file__).parents[2]


LAYOUTS = {
    "vissl": vissl_checkpoint,
    "vissl's linear benchmark": lambda trunk: vissl_checkpoint(
        prefixed(trunk, "base_model._feature_blocks.")
    ),
    "vissl, distributed": lambda trunk: vissl_checkpoint(
        {f"module.{n}": t for n, t in trunk.items()}
    ),
    "model zoo, model_state_dict": lambda trunk: {
        "model_state_dict": {**trunk, "heads.0.clf.0.weight": torch.zeros(3)}
    },
    "model zoo, trunk and heads in one": lambda trunk: {
        "model": {**prefixed(trunk, f"trunk.{PREFIX}"), "heads.0.weight": torch.zeros(3)}
    },
    "converted, bare": lambda trunk: dict(trunk),
    "torchvision": lambda trunk: {**bare(trunk), "fc.weight": torch.zeros(9, 2)},
    "torchvision, distributed": lambda trunk: {
        "epoch": 3,
        "state_dict": {**prefixed(trunk, "module."), "module.fc.weight": torch.zeros(9, 2)},
    },
    "PyContrast": lambda trunk: {
        "model": {**prefixed(trunk, "encoder.module."), "head.0.weight": torch.zeros(3)}
    },
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_export__finds_the_trunk_in_every_layout(layout, tmp_path):
    trunk = small_trunk()
    source = save(LAYOUTS[layout](trunk), tmp_path / "in.torch")
    found = export_checkpoint(source, tmp_path / "out.pth", "torchvision")
    assert (found.depth, found.width, found.small_stem) == (18, 0.125, False)
    assert same(torch.load(tmp_path / "out.pth"), bare(trunk))


@pytest.mark.parametrize("depth", [10, 18, 34, 50, 101, 152])
def test_export__takes_every_depth(depth, tmp_path):
    trunk = small_trunk(depth)
    source = save(vissl_checkpoint(trunk), tmp_path / "in.torch")
    found = export_checkpoint(source, tmp_path / "out.safetensors", "safetensors")
    assert found.depth == depth
    assert same(load_file(tmp_path / "out.safetensors"), bare(trunk))


def test_find_trunk__takes_c2x_of_the_papers_size():
    # Every tensor is one number, expanded: the shapes are those of 93,907,072 parameters.
    state = {n: torch.ones(()).expand(s) for n, s in expected_shapes(50, 2, False).items()}
    found = find_trunk(state, "c2x")
    assert (found.depth, found.width, found.title) == (50, 2, "ResNet-50 of width 2")
    learnt = {n: t for n, t in found.weights().items() if "running" not in n}
    assert sum(t.numel() for t in learnt.values()) == 93_907_072


def test_resnet50__has_265_tensors():
    names = [n for n in expected_shapes(50, 1, False) if not n.endswith("num_batches_tracked")]
    assert len(names) == 265  # 53 convolutions, each with 4 tensors of batch norm
    renamed = [to_detectron2(n) for n in names]
    assert len(set(renamed)) == 265
    assert [to_torchvision(n) for n in renamed] == names
    with pytest.raises(ValueError, match=r"'fc\.weight' is not the name"):
        to_detectron2("fc.weight")


def test_export__round_trips_bit_by_bit(tmp_path):
    trunk = small_trunk(50)
    first = save(vissl_checkpoint(trunk), tmp_path / "in.torch")
    export_checkpoint(first, tmp_path / "a.pkl", "detectron2")
    export_checkpoint(tmp_path / "a.pkl", tmp_path / "b.pth", "torchvision")
    export_checkpoint(tmp_path / "b.pth", tmp_path / "c.safetensors", "safetensors")
    export_checkpoint(tmp_path / "c.safetensors", tmp_path / "d.pkl", "detectron2")
    assert same(torch.load(tmp_path / "b.pth"), weights(trunk))
    assert same(load_file(tmp_path / "c.safetensors"), weights(trunk))
    assert (tmp_path / "a.pkl").read_bytes() == (tmp_path / "d.pkl").read_bytes()


def test_detectron2__is_a_pickle_of_its_model_zoos_kind(tmp_path):
    trunk = small_trunk(50)
    source = save(vissl_checkpoint(trunk), tmp_path / "in.torch")
    export_checkpoint(source, tmp_path / "out.pkl", "detectron2")
    content = pickle.loads((tmp_path / "out.pkl").read_bytes())
    assert content["matching_heuristics"] is True
    assert content["__author__"] not in ("", "Caffe2")  # Caffe2's names would be translated
    assert len(content["model"]) == 265
    assert all(isinstance(array, np.ndarray) for array in content["model"].values())
    expected = trunk[f"{PREFIX}layer4.0.downsample.1.running_var"].numpy()
    np.testing.assert_array_equal(content["model"]["res5.0.shortcut.norm.running_var"], expected)
    np.testing.assert_array_equal(
        content["model"]["stem.conv1.norm.bias"], trunk[f"{PREFIX}bn1.bias"].numpy()
    )


@pytest.mark.parametrize("out", ["out.pth", "out.pkl", "out.safetensors"])
def test_exported__gives_the_features_of_vissls_trunk_to_the_bit(out, tmp_path):
    from vissl.models import build_model
    from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

    composed = compose_hydra_configuration(["config=pretrain/pirl/pirl_jigsaw_4node_resnet50"])
    _, config = convert_to_attrdict(composed, dump_config=False)
    torch.manual_seed(0)
    model = build_model(config.MODEL, config.OPTIMIZER)
    generator = torch.Generator().manual_seed(0)
    for name, buffer in model.trunk.named_buffers():
        if "running" in name:
            buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
    state = {"classy_state_dict": {"base_model": model.get_classy_state()}}
    source = save(state, tmp_path / "in.torch")
    to = next(t for t, suffixes in formats.SUFFIXES.items() if Path(out).suffix in suffixes)
    export_checkpoint(source, tmp_path / out, to)
    if to == "detectron2":
        export_checkpoint(tmp_path / out, tmp_path / "back.pth", "torchvision")
    loaded = (
        load_file(tmp_path / out)
        if to == "safetensors"
        else torch.load(tmp_path / (out if to == "torchvision" else "back.pth"))
    )
    theirs = torchvision.models.resnet50()
    unmatched = theirs.load_state_dict(loaded, strict=False)
    assert set(unmatched.missing_keys) == {"fc.weight", "fc.bias"}
    assert not unmatched.unexpected_keys
    theirs.avgpool = theirs.fc = torch.nn.Identity()
    images = torch.randn(2, 3, 96, 96, generator=generator)
    with torch.no_grad():
        (res5,) = model.trunk.eval()(images, ["res5"])
        assert res5.shape == (2, 2048, 3, 3)
        assert torch.equal(theirs.eval()(images), res5.flatten(1))


def test_safetensors__load_into_timm(tmp_path):
    timm = pytest.importorskip("timm", reason="timm is not installed")
    trunk = small_trunk(18, width=1)
    source = save(vissl_checkpoint(trunk), tmp_path / "in.torch")
    export_checkpoint(source, tmp_path / "out.safetensors", "safetensors")
    model = timm.create_model(
        "resnet18", num_classes=0, checkpoint_path=str(tmp_path / "out.safetensors")
    )
    assert same(dict(model.state_dict()), bare(trunk))


def test_export__reads_files_saved_on_a_gpu(tmp_path, monkeypatch):
    trunk = small_trunk()
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        source = save(vissl_checkpoint(trunk), tmp_path / "in.torch")
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="CUDA"):
            torch.load(source, weights_only=True)
    export_checkpoint(source, tmp_path / "out.pth", "torchvision")
    assert same(torch.load(tmp_path / "out.pth"), bare(trunk))


def test_export__reads_torchs_older_format_and_trunks_without_counters(tmp_path):
    trunk = small_trunk()
    source = save(
        {"model_state_dict": weights(trunk)},
        tmp_path / "in.torch",
        _use_new_zipfile_serialization=False,
    )
    export_checkpoint(source, tmp_path / "out.pth", "torchvision")
    assert same(torch.load(tmp_path / "out.pth"), weights(trunk))


def test_export__keeps_half_precision(tmp_path):
    trunk = {n: t.bfloat16() if t.is_floating_point() else t for n, t in small_trunk().items()}
    source = save(trunk, tmp_path / "in.torch")
    export_checkpoint(source, tmp_path / "out.safetensors", "safetensors")
    assert same(load_file(tmp_path / "out.safetensors"), bare(trunk))
    export_checkpoint(source, tmp_path / "out.pkl", "detectron2")  # numpy has no bfloat16
    array = pickle.loads((tmp_path / "out.pkl").read_bytes())["model"]["stem.conv1.weight"]
    np.testing.assert_array_equal(array, trunk[f"{PREFIX}conv1.weight"].float().numpy())


def test_export__takes_one_of_several_trunks_by_its_keys(tmp_path):
    query, key = small_trunk(seed=0), small_trunk(seed=1)
    moco = {"state_dict": prefixed(query, "encoder_q.") | prefixed(key, "encoder_k.")}
    source = save(moco, tmp_path / "in.torch")
    out = tmp_path / "out.pth"
    with pytest.raises(ValueError, match=r"2 trunks, at state_dict\.encoder_q\., .*--trunk"):
        export_checkpoint(source, out, "torchvision")
    export_checkpoint(source, out, "torchvision", trunk="state_dict.encoder_k")
    assert same(torch.load(out), bare(key))
    with pytest.raises(ValueError, match=r"no ResNet trunk at state_dict\.encoder_z"):
        export_checkpoint(source, out, "torchvision", trunk="state_dict.encoder_z")


def test_command__is_the_script_and_says_what_it_wrote(tmp_path):
    source = save(vissl_checkpoint(small_trunk(50)), tmp_path / "in.torch")
    script = ROOT / "extra_scripts" / "export_checkpoint.py"
    command = [sys.executable, script, source, tmp_path / "out.pkl", "--to", "detectron2"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "ResNet-50 of width 0.125, 265 tensors" in result.stdout
    assert "'classy_state_dict.base_model.model.trunk._feature_blocks.'" in result.stdout


def test_command__fails_in_one_sentence(tmp_path, capsys):
    arguments = [str(tmp_path / "none.torch"), str(tmp_path / "out.pkl"), "--to", "detectron2"]
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert "there is no file" in said
    assert len(said.splitlines()) == 1


def test_export__safetensors_in(tmp_path):
    trunk = small_trunk()
    save_file(prefixed(trunk, "backbone."), tmp_path / "in.safetensors")
    export_checkpoint(tmp_path / "in.safetensors", tmp_path / "out.pth", "torchvision")
    assert same(torch.load(tmp_path / "out.pth"), bare(trunk))
