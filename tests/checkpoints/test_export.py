"""Exported trunks keep their weights bit for bit, from any layout and in any format."""

import pickle
import shlex
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torchvision
from safetensors.torch import load_file

import pirl_plugin
from pirl_plugin.checkpoints.export import export_checkpoint, loading_lines
from pirl_plugin.checkpoints.export_command import main
from pirl_plugin.checkpoints.formats import detectron2_options, to_detectron2
from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.models.resnet import WideResNet
from pirl_plugin.models.timm_trunk import TimmTrunk
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


def _child(name):
    """Return a tensor's torchvision name inside an nn.Sequential of the network's children."""
    children = ["conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4"]
    part, _, rest = name.partition(".")
    return f"{children.index(part)}.{rest}"


LAYOUTS = {
    "vissl": vissl_checkpoint,
    "vissl's linear benchmark": lambda trunk: vissl_checkpoint(
        prefixed(trunk, "base_model._feature_blocks.")
    ),
    "model zoo": lambda trunk: {
        "model": {**prefixed(trunk, f"trunk.{PREFIX}"), "heads.0.weight": torch.zeros(3)}
    },
    "torchvision": lambda trunk: {**bare(trunk), "fc.weight": torch.zeros(9, 2)},
    "SwAV, DeepCluster-v2": lambda trunk: {
        **prefixed(trunk, "module."),
        "module.projection_head.0.weight": torch.zeros(9, 2),
        "module.prototypes.weight": torch.zeros(9, 2),
    },
    "MoCo": lambda trunk: {
        "state_dict": {
            **prefixed(trunk, "module.encoder_q."),
            **prefixed(small_trunk(seed=1), "module.encoder_k."),
            "module.queue": torch.zeros(3, 3),
        }
    },
    "DINO": lambda trunk: {
        "student": prefixed(small_trunk(seed=1), "module.backbone."),
        "teacher": prefixed(trunk, "backbone."),
    },
    "lightly": lambda trunk: {
        "state_dict": {
            **{f"backbone.{_child(name)}": tensor for name, tensor in bare(trunk).items()},
            "projection_head.layers.0.weight": torch.zeros(9, 2),
        }
    },
    "VISSL's MoCo": lambda trunk: {
        **vissl_checkpoint(trunk),
        "loss": {"moco_encoder": prefixed(small_trunk(seed=1), "module.trunk.")},
    },
    "FSDP, checkpointed and compiled": lambda trunk: {
        "_orig_mod._fsdp_wrapped_module."
        + name.replace(".0.", ".0._checkpoint_wrapped_module.").replace(
            "conv1.", "conv1._fsdp_wrapped_module."
        ): tensor
        for name, tensor in bare(trunk).items()
    },
    "classifier beside it": lambda trunk: {**bare(trunk), "classifier.weight": torch.zeros(9, 2)},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_export__finds_trunk_in_every_layout(layout, tmp_path):
    trunk = small_trunk()
    source = save(LAYOUTS[layout](trunk), tmp_path / "in.torch")
    found = export_checkpoint(source, tmp_path / "out.pth", "torchvision")
    assert found.network_config.name == "ResNet-18 of width 0.125"
    assert same(torch.load(tmp_path / "out.pth"), bare(trunk))


def test_trunk__must_be_named_if_several_match(tmp_path, caplog):
    first, second = small_trunk(), small_trunk(seed=1)
    networks = {**prefixed(first, "a."), **prefixed(second, "b."), "b.fc.bias": torch.zeros(9)}
    source = save(networks, tmp_path / "in.pth")
    with pytest.raises(ValueError, match=r"2 networks, at a, b\. Choose one as"):
        export_checkpoint(source, tmp_path / "out.pth", "torchvision")
    export_checkpoint(source, tmp_path / "out.pth", "torchvision", trunk="b")
    assert same(torch.load(tmp_path / "out.pth"), bare(second))
    assert [record.getMessage() for record in caplog.records] == [f"{source}: ignored fc"]
    networks = {**bare(first), **prefixed(second, "b."), **prefixed(second, "a.b.")}
    source = save(networks, tmp_path / "in.pth")
    for prefix, trunk in (("", first), ("b", second)):
        export_checkpoint(source, tmp_path / "out.pth", "torchvision", trunk=prefix)
        assert same(torch.load(tmp_path / "out.pth"), bare(trunk))


def test_export__round_trips_bit_for_bit(tmp_path):
    trunk = small_trunk(50)
    first = save(vissl_checkpoint(trunk), tmp_path / "in.torch")
    export_checkpoint(first, tmp_path / "a.pkl", "detectron2")
    export_checkpoint(first, tmp_path / "b.pth", "torchvision")
    export_checkpoint(tmp_path / "b.pth", tmp_path / "c.safetensors", "safetensors")
    export_checkpoint(tmp_path / "c.safetensors", tmp_path / "d.torch", "vissl")
    written = load_file(tmp_path / "c.safetensors")
    assert same({n: written[n] for n in weights(trunk)}, weights(trunk))
    loaded = load_trunk(tmp_path / "d.torch").state_dict()
    assert same({n: loaded[n] for n in weights(trunk)}, weights(trunk))
    content = pickle.loads((tmp_path / "a.pkl").read_bytes())
    assert content["matching_heuristics"] is True
    for name, tensor in weights(trunk).items():
        np.testing.assert_array_equal(content["model"][to_detectron2(name)], tensor.numpy())


def test_exported_networks__match_trunk_output(tmp_path):
    trunk, images = small_trunk(18, 1), torch.rand(2, 3, 64, 64)
    source = save(vissl_checkpoint(trunk), tmp_path / "in.torch")
    with torch.no_grad():
        expected = load_trunk(source)(images)
        found = export_checkpoint(source, tmp_path / "out.pth", "torchvision")
        scope = {"torchvision": torchvision, "torch": torch}
        exec(loading_lines(found, "torchvision", tmp_path / "out.pth"), scope)
        assert torch.equal(scope["model"].eval()(images), expected)
        export_checkpoint(source, tmp_path / "folder", "timm")
        net = timm.create_model(f"local-dir:{tmp_path / 'folder'}", pretrained=True, num_classes=0)
        assert torch.equal(net.eval()(images), expected)


def test_small_stem_network__loads_with_our_class_but_not_timm(tmp_path):
    trunk = small_trunk(10, 0.5, SMALL_STEM=True)
    source = save(vissl_checkpoint(trunk), tmp_path / "in.torch")
    found = export_checkpoint(source, tmp_path / "out.pth", "torchvision")
    lines = loading_lines(found, "torchvision", tmp_path / "out.pth")
    assert "WideResNet(depth=10, width=0.5, small_stem=True)" in lines
    for to, out in (("timm", "folder"), ("detectron2", "out.pkl")):
        with pytest.raises(ValueError, match=r"no ResNet-10 of width 0\.5, 3×3 .*a ResNet-18"):
            export_checkpoint(source, tmp_path / out, to)
        assert not (tmp_path / out).exists()


def test_detectron2_options__match_the_papers_wide_network():
    with torch.device("meta"):
        trunk = WideResNet(50, 2)
    options = detectron2_options(trunk)
    assert options["MODEL.RESNETS.RES2_OUT_CHANNELS"] == 512  # 256 at width 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("layer2.0.conv1.weight"), "missing: layer2.0.conv1.weight"),
        (lambda state: state.update({"layer1.9.bn1.bias": torch.ones(8)}), "left over: layer1.9"),
        (lambda state: state.update({"bn1.bias": torch.ones(3)}), r"bn1.bias \(3,\), expected"),
        (lambda state: state["bn1.bias"].fill_(torch.nan), "NaN or infinite values in bn1.bias"),
    ],
)
def test_export__refuses_incomplete_trunk(change, message, tmp_path):
    state = bare(small_trunk())
    change(state)
    with pytest.raises(ValueError, match=message):
        export_checkpoint(save(state, tmp_path / "in.pth"), tmp_path / "out.pth", "torchvision")
    assert not (tmp_path / "out.pth").exists()


def test_command__prints_what_was_written_and_how_to_load_it(tmp_path, capsys):
    source = save(LAYOUTS["MoCo"](small_trunk()), tmp_path / "in.torch")
    out = tmp_path / "my run" / "out.torch"
    assert main(["--checkpoint", str(source), "--to", "vissl", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert f"{out}: ResNet-18 of width 0.125, from {source}" in said
    (overrides,) = [line for line in said.splitlines() if "PARAMS_FILE" in line]
    weights_file = shlex.split(overrides)[0].partition("=")[2]
    assert weights_file == str(out)  # despite the space in the path


def test_loading_lines__name_timms_options():
    for options, call in (({}, "num_classes=0)"), ({"in_chans": 1}, "num_classes=0, in_chans=1)")):
        lines = loading_lines(TimmTrunk("test_resnet", options), "safetensors", Path("a"))
        assert f"timm.create_model('test_resnet', {call}" in lines


IMAGES = {"size": 64, "mean": (0.1, 0.2, 0.3), "std": (0.5, 0.6, 0.7)}


@pytest.mark.parametrize(("to", "out"), [("vissl", "o.torch"), ("timm", "o")])
def test_record__is_exported_with_weights(to, out, tmp_path):
    """With ImageNet's statistics instead, features had a mean cosine similarity of 0.54."""
    trunk = WideResNet(18)
    trunk.network_config = trunk.network_config.with_values("test", **IMAGES)
    save_trunk(trunk, tmp_path / "in.torch")
    written = tmp_path / out
    found = export_checkpoint(tmp_path / "in.torch", written, to)
    again = load_trunk(written / "model.safetensors" if to == "timm" else written)
    for config in (found.network_config, again.network_config):
        assert {name: getattr(config, name) for name in IMAGES} == IMAGES
        assert config.defaults == []
    if to == "timm":
        net = timm.create_model(f"local-dir:{written}", pretrained=True, num_classes=0)
        given = timm.data.resolve_model_data_config(net)
        assert (tuple(given["mean"]), given["input_size"]) == (IMAGES["mean"], (3, 64, 64))
    assert detectron2_options(found)["MODEL.PIXEL_MEAN"] == [25.5, 51.0, 76.5]


def test_export__of_other_numbers_of_channels(tmp_path):
    trunk = WideResNet(18, 0.25, in_channels=1).eval()
    save_trunk(trunk, tmp_path / "in.torch")
    with pytest.raises(ValueError, match=r"Detectron2 has no ResNet-18 of width 0\.25, 1 channel,"):
        export_checkpoint(tmp_path / "in.torch", tmp_path / "out.pkl", "detectron2")
    export_checkpoint(tmp_path / "in.torch", tmp_path / "out.pth", "torchvision")
    scope = {"pirl_plugin": pirl_plugin, "torch": torch}
    exec(loading_lines(trunk, "torchvision", tmp_path / "out.pth"), scope)
    images = torch.rand(2, 1, 32, 32)
    assert torch.equal(scope["model"].eval()(images), trunk(images))
