"""A file's description of a timm network opens, fetches and executes nothing.

timm's constructor options ``checkpoint_path``, ``pretrained`` and ``pretrained_cfg_overlay`` name
files and URLs, as do network names that start with ``hf-hub:`` or ``local-dir:``.
"""

import functools
import json
import os

import pytest
import timm
import torch
import yaml
from safetensors.torch import save_file

from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.network_record import NETWORK
from pirl_plugin.checkpoints.read import SECTION
from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.models.resnet import WideResNet
from pirl_plugin.models.timm_trunk import TimmTrunk
from pirl_plugin.system.failures import Refused
from tests.vissl.test_planted_files import Planted

NAME = "test_vit"


def network_tensors():
    return timm.create_model(NAME, num_classes=0).state_dict()


def in_checkpoint(folder, name, options):
    trunk = {f"net.{key}": value for key, value in network_tensors().items()}
    record = {"architecture": name, "options": options}
    states = {"base_model": {"model": {"trunk": trunk}}, "hooks": {SECTION: {NETWORK: record}}}
    torch.save({"classy_state_dict": states}, folder / "in.torch")
    return folder / "in.torch"


def beside_safetensors(folder, name, options):
    save_file(network_tensors(), folder / "model.safetensors")
    config = {"architecture": name, "model_args": options, "pretrained_cfg": {}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder / "model.safetensors"


PLACES = [in_checkpoint, beside_safetensors]


def plants(folder):
    """Return names and options that open, fetch or run something, or reach a command line."""
    file = folder / "planted.pth"
    torch.save({"a": Planted(folder / "ran")}, file)
    address = "http://127.0.0.1:9/planted.pth"
    return [
        (NAME, {"checkpoint_path": str(file)}),
        (NAME, {"pretrained": True}),
        (NAME, {"pretrained": True, "pretrained_cfg_overlay": {"file": str(file)}}),
        (NAME, {"pretrained_cfg": {"url": address}}),
        (NAME, {"cache_dir": str(folder)}),
        (NAME, {"weight_init": str(file)}),
        (NAME, {"weight_init": address}),
        (NAME, {"weight_init": "${oc.env:HOME}"}),
        (NAME, {"img_size": [32, {"a": 1}]}),
        (NAME, ["img_size"]),
        ("hf-hub:planted/planted", {}),
        (f"local-dir:{folder}", {}),
        (f"{NAME}.hf-hub:planted", {}),
        (["test_vit"], {}),
    ]


@pytest.mark.parametrize("place", PLACES)
def test_description__allows_only_networks_and_plain_options(place, tmp_path, monkeypatch):
    built = []
    create = timm.create_model

    @functools.wraps(create)
    def create_model(name, **options):
        built.append((name, options))
        return create(name, **options)

    monkeypatch.setattr(timm, "create_model", create_model)
    for number, (name, options) in enumerate(plants(tmp_path)):
        folder = tmp_path / str(number)
        folder.mkdir()
        file = place(folder, name, options)
        built.clear()
        with pytest.raises(Refused, match=r"describes the timm network .*, but "):
            load_trunk(file)
        assert not built
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("record", [1, [1], {"architecture": NAME}, {"options": {}}])
def test_damaged_description__is_refused(record, tmp_path):
    file = in_checkpoint(tmp_path, NAME, {})
    content = torch.load(file, weights_only=True)
    content["classy_state_dict"]["hooks"][SECTION][NETWORK] = record
    torch.save(content, file)
    with pytest.raises(Refused, match=r"in\.torch: the network record is damaged"):
        load_trunk(file)


@pytest.mark.parametrize("record", [1, {"architecture": NAME, "pretrained_cfg": 1}])
def test_damaged_config_of_timm__is_refused(record, tmp_path):
    beside_safetensors(tmp_path, NAME, {})
    (tmp_path / "config.json").write_text(json.dumps(record))
    with pytest.raises(Refused, match=r"config\.json: the network record is damaged"):
        load_trunk(tmp_path / "model.safetensors")


def test_run_record__names_no_network_to_build(tmp_path, monkeypatch):
    monkeypatch.setattr(timm, "create_model", None)
    for number, (name, options) in enumerate(plants(tmp_path)):
        section = {"NAME": name, "OPTIONS": options}
        run = {"MODEL": {"TRUNK": {"NAME": "pirl_timm", "PIRL_TIMM": section}}}
        (tmp_path / "train_config.yaml").write_text(yaml.safe_dump(run))
        file = tmp_path / f"model_phase{number}.torch"
        save_trunk(WideResNet(10, 0.125), file)
        assert load_trunk(file).network_config.name == "ResNet-10 of width 0.125"
    assert not (tmp_path / "ran").exists()


def test_own_description__has_no_option_for_loading_weights(tmp_path, monkeypatch):
    """Users may load timm's weights, but our checkpoint contains them and need not fetch them."""
    weights = tmp_path / "weights.pth"
    torch.save(timm.create_model(NAME, num_classes=0, img_size=32).state_dict(), weights)
    options = {"checkpoint_path": str(weights), "img_size": 32}
    trunk = TimmTrunk("test_vit.r160_in1k", options)
    assert trunk.network_config.options == {"dynamic_img_size": True, "img_size": 32}
    save_trunk(trunk, tmp_path / "in.torch")
    os.remove(weights)
    again = load_trunk(tmp_path / "in.torch").network_config
    assert again.architecture == "test_vit.r160_in1k"
    assert again.options == trunk.network_config.options


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("size", "224\nimport os"),
        ("size", 10**7),
        ("size", 10**400),
        ("size", 0),
        ("size", True),
        ("size", [224]),
        ("mean", ["0.5\nimport os"] * 3),
        ("mean", [float("nan")] * 3),
        ("mean", [10**400] * 3),
        ("mean", [0.5] * 1000),
        ("std", [0, 1, 1]),
        ("std", 1),
        ("dtype", "uint8\nimport os"),
        ("dtype", ["uint8"]),
        ("options", {"in_channels": 10**9}),
        ("class", "Net\nimport os"),
        ("options", 1),
    ],
)
def test_record__has_values_of_known_types_and_ranges(key, value, tmp_path):
    file = tmp_path / "in.torch"
    save_trunk(WideResNet(10, 0.125), file)
    content = torch.load(file, weights_only=True)
    content["classy_state_dict"]["hooks"][SECTION][NETWORK][key] = value
    torch.save(content, file)
    with pytest.raises(Refused, match=r"^.*in\.torch.*$") as error:  # in one line
        load_trunk(file)
    assert len(str(error.value)) < 600


def test_tensors__describe_no_network_larger_than_the_file(tmp_path):
    state = WideResNet(10, 0.125).state_dict()
    state["conv1.weight"] = torch.zeros(64 * 1000, 3, 7, 7)  # of a network with terabytes
    torch.save(state, tmp_path / "in.pth")
    with pytest.raises(Refused, match="does not hold"):
        load_trunk(tmp_path / "in.pth")


def test_options__describe_no_network_larger_than_the_file(tmp_path):
    with pytest.raises(Refused, match="does not hold"):
        load_trunk(in_checkpoint(tmp_path, NAME, {"embed_dim": 16_000}))
