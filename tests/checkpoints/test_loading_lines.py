"""The printed lines load the exported file as they are, for every format and network."""

import shlex
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from vissl.models import build_model

from pirl_plugin.checkpoints.detectron2_options import detectron2_options
from pirl_plugin.checkpoints.export_command import main
from pirl_plugin.checkpoints.load import load_trunk, save_trunk
from pirl_plugin.checkpoints.loading_lines import loading_lines
from pirl_plugin.export import export_checkpoint
from pirl_plugin.models.timm_trunk import TimmTrunk
from tests.helpers.configs import compose
from tests.helpers.export_files import small_trunk, vissl_checkpoint

NETWORKS = {
    "ResNet-18": {"depth": 18, "width": 1},
    "ResNet-50": {"depth": 50, "width": 1},
    "ResNet-10": {"depth": 10, "width": 1},
    "ResNet-10 of width 0.5": {"depth": 10, "width": 0.5},
    "ResNet-18 of width 1, 3×3 stem": {"depth": 18, "width": 1, "SMALL_STEM": True},
    "ResNet-50 of width 0.25, 3×3 stem": {"depth": 50, "width": 0.25, "SMALL_STEM": True},
}
SUFFIX = {"torchvision": "out.pth", "safetensors": "out.safetensors", "vissl": "out.torch"}


def run_lines(lines, images):
    """Features of the model that lines of Python make."""
    names = {}
    exec(lines, names)  # the lines are what is tested
    with torch.no_grad():
        return names["model"].eval()(images)


@pytest.mark.parametrize("to", ["torchvision", "safetensors"])
@pytest.mark.parametrize("network", NETWORKS)
def test_lines__load_the_file_with_the_trunks_features(network, to, tmp_path):
    source, out = tmp_path / "in.torch", tmp_path / SUFFIX[to]
    torch.save(vissl_checkpoint(small_trunk(**NETWORKS[network])), source)
    lines = loading_lines(export_checkpoint(source, out, to), to, out)
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = load_trunk(source)(images)[0]
    assert torch.equal(run_lines(lines, images), expected)


def test_lines__are_kept_with_the_file(tmp_path):
    torch.save(vissl_checkpoint(small_trunk(18, width=1)), tmp_path / "in.torch")
    for to, name in SUFFIX.items():
        out = tmp_path / name
        lines = loading_lines(export_checkpoint(tmp_path / "in.torch", out, to), to, out)
        if to == "safetensors":
            with safe_open(out, "pt") as file:
                assert file.metadata()["loading"] == lines
                assert file.metadata()["architecture"] == "ResNet-18"
        else:
            written = Path(f"{out}.txt").read_text()
            assert lines in written
            assert written.startswith("# ResNet-")  # of a shell, it was a command
    assert set(torch.load(tmp_path / "out.pth")) == {
        name.removeprefix("_feature_blocks.") for name in small_trunk(18)
    }


@pytest.mark.parametrize(
    ("network", "to", "said"),
    [
        ("ResNet-10 of width 0.5", "torchvision", "torchvision has no ResNet-10 of width 0.5"),
        ("ResNet-10", "torchvision", "torchvision has no ResNet-10"),
        (
            "ResNet-10 of width 0.5",
            "safetensors",
            "timm and torchvision have no ResNet-10 of width 0.5",
        ),
        ("ResNet-18", "torchvision", None),
        ("ResNet-10", "safetensors", None),
    ],
)
def test_command__says_which_library_lacks_the_network(network, to, said, tmp_path, capsys):
    source, out = tmp_path / "in.torch", tmp_path / SUFFIX[to]
    torch.save(vissl_checkpoint(small_trunk(**NETWORKS[network])), source)
    assert main([str(source), str(out), "--to", to]) == 0
    printed = capsys.readouterr().out
    assert "To load it:" in printed
    if said is None:
        assert " has no " not in printed
        assert " have no " not in printed
    else:
        assert f"{said}; the file is written" in printed
        assert "from pirl_plugin.models.resnet import WideResNet" in printed


@pytest.mark.parametrize("network", NETWORKS)
def test_vissl__lines_name_a_benchmark_that_takes_the_file(network, tmp_path):
    source, out = tmp_path / "in.torch", tmp_path / "out.torch"
    trunk = small_trunk(**NETWORKS[network])
    torch.save({"model_state_dict": trunk}, source)
    lines = loading_lines(export_checkpoint(source, out, "vissl"), "vissl", out)
    check_vissl_lines(lines, trunk)


@pytest.mark.parametrize("name", ["resnet10t", "vit_tiny_patch16_224"])
def test_vissl__lines_name_a_benchmark_that_takes_timms_networks(name, tmp_path):
    pytest.importorskip("timm", reason="timm is not installed")
    options = {"img_size": 32, "depth": 1} if name.startswith("vit") else {}
    trunk = TimmTrunk(name, options)
    save_trunk(trunk, tmp_path / "in.torch")
    out = tmp_path / "out.torch"
    found = export_checkpoint(tmp_path / "in.torch", out, "vissl")
    check_vissl_lines(loading_lines(found, "vissl", out), trunk.state_dict())


def check_vissl_lines(lines, trunk):
    """Build the host's model as the lines say, and let the host load the file into it."""
    program, command, *overrides = shlex.split(lines.replace("\\\n", " "))
    assert (program, command) == ("pirl-plugin", "train")
    config = compose(*overrides)
    model = build_model(config.MODEL, config.OPTIMIZER)
    checkpoint = torch.load(config.MODEL.WEIGHTS_INIT.PARAMS_FILE, weights_only=True)
    model.init_model_from_weights_params_file(config, checkpoint)
    loaded = model.trunk.base_model.state_dict()
    assert loaded.keys() == trunk.keys()
    for name, tensor in trunk.items():
        assert "num_batches_tracked" in name or torch.equal(loaded[name], tensor), name


def test_detectron2__lines_give_the_options_that_a_detection_run_checks(tmp_path):
    source, out = tmp_path / "in.torch", tmp_path / "out.pkl"
    torch.save(vissl_checkpoint(small_trunk(50, width=2)), source)
    found = export_checkpoint(source, out, "detectron2")
    lines = loading_lines(found, "detectron2", out)
    assert f'"MODEL.WEIGHTS", "{out}",' in lines
    for key, value in detectron2_options(found).items():
        assert f'"{key}", ' in lines
        assert str(value) in lines
    compile(lines, "lines", "exec")


def test_vissl__lines_survive_a_shell_whatever_the_path(tmp_path):
    torch.save({"model_state_dict": small_trunk()}, tmp_path / "in.torch")
    out = tmp_path / "lr=0.1, [x]" / "out.torch"
    out.parent.mkdir()
    lines = loading_lines(export_checkpoint(tmp_path / "in.torch", out, "vissl"), "vissl", out)
    words = shlex.split(lines.replace("\\\n", " "))
    assert compose(*words[2:]).MODEL.WEIGHTS_INIT.PARAMS_FILE == str(out)
