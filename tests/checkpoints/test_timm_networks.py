"""timm networks: names, options, conversion by timm, and export."""

import json
import re

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file
from timm.models import adapt_input_conv

from pirl_plugin.checkpoints.export import export_checkpoint
from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.models.resnet import WideResNet
from pirl_plugin.models.timm_trunk import TimmTrunk
from tests.helpers.export_files import prefixed, same, save

NAMES = """
resnet18 resnet26 resnet50 resnext50_32x4d resnet50d res2net50_26w_4s seresnet18 skresnet18
resnest14d hrnet_w18_small densenet121 dla34 tf_efficientnet_lite0 mobilenetv3_small_050
regnety_002 repvgg_a0 ghostnet_050 rexnet_100 inception_v3 nfnet_f0 convnext_atto
vit_tiny_patch16_224 deit_tiny_distilled_patch16_224 swin_tiny_patch4_window7_224 levit_128s
mixer_s32_224 xcit_nano_12_p8_224 poolformer_s12 pvt_v2_b0 mobilevit_xxs edgenext_xx_small
maxvit_rmlp_pico_rw_256 efficientvit_b0
""".split()


# ResNet blocks also have a ``conv1.weight``; efficientvit_b0's classifier is named like a layer.
ORDINARY = ("resnet26", "efficientvit_b0")


@pytest.mark.parametrize(
    "name",
    [name if name in ORDINARY else pytest.param(name, marks=pytest.mark.slow) for name in NAMES],
)
def test_network__is_read_exported_and_read_back(name, tmp_path):
    torch.manual_seed(0)
    net = timm.create_model(name).eval()
    content = {"state_dict": {f"module.{key}": value for key, value in net.state_dict().items()}}
    torch.save(content, tmp_path / "in.pth")
    trunk = load_trunk(tmp_path / "in.pth", timm=name)

    bare = timm.create_model(name, num_classes=0).eval()
    bare.load_state_dict(net.state_dict(), strict=False)
    size = trunk.network_config.size
    images = torch.randn(1, 3, size, size)
    with torch.no_grad():
        assert torch.equal(trunk(images), bare(images))
        export_checkpoint(tmp_path / "in.pth", tmp_path / "out", "timm", timm=name)
        again = load_trunk(tmp_path / "out" / "model.safetensors")
        assert torch.equal(again(images), bare(images))


def test_timm_network__is_named_by_file_or_user(tmp_path):
    trunk = TimmTrunk("test_vit", {"img_size": 32})
    save_trunk(trunk, tmp_path / "in.torch")
    found = export_checkpoint(tmp_path / "in.torch", tmp_path / "out.safetensors", "safetensors")
    assert found.network_config.architecture == "test_vit"
    assert found.network_config.options["img_size"] == 32
    export_checkpoint(tmp_path / "in.torch", tmp_path / "folder", "timm")
    again = load_trunk(tmp_path / "folder" / "model.safetensors")  # config.json has the name
    assert again.network_config.architecture == "test_vit"
    assert again.network_config.options["img_size"] == [32, 32]
    assert same(again.net.state_dict(), found.net.state_dict())
    net = timm.create_model("test_vit")
    file = save({"model": prefixed(net.state_dict(), "module.")}, tmp_path / "plain.pth")
    named = load_trunk(file, timm="test_vit")
    assert torch.equal(named.net.state_dict()["cls_token"], net.state_dict()["cls_token"])


def test_timm_network__under_wrong_name_is_refused(tmp_path):
    """Some tensors in its blocks are named as in a ResNet."""
    net = timm.create_model("tf_efficientnet_lite0", num_classes=0)
    file = save(net.state_dict(), tmp_path / "in.pth")
    with pytest.raises(ValueError, match=r"does not hold timm.s resnet18: most of its 120 tensors"):
        load_trunk(file, timm="resnet18")


def test_averaged_weights__are_chosen_as_in_timm(tmp_path):
    first = timm.create_model("test_resnet", num_classes=0).state_dict()
    averaged = timm.create_model("test_resnet", num_classes=0).state_dict()
    content = {"state_dict": first, "state_dict_ema": averaged}
    trunk = load_trunk(save(content, tmp_path / "in.pth"), timm="test_resnet")
    assert same(trunk.net.state_dict(), averaged)


def test_timm_network__takes_image_size_from_options(tmp_path, caplog):
    net = timm.create_model("test_vit", img_size=48)
    file = save(net.state_dict(), tmp_path / "vit.pth")
    with pytest.raises(ValueError, match=r"holds no ResNet: .*pass timm's name for it as `timm`"):
        load_trunk(file)
    with pytest.raises(ValueError, match=r"timm options .* need timm's name for the"):
        load_trunk(file, timm_options={"img_size": 48})
    found = load_trunk(file, timm="test_vit", timm_options={"img_size": 48})
    assert torch.equal(found.net.state_dict()["pos_embed"], net.state_dict()["pos_embed"])
    assert found.network_config.size == 48  # timm's size applies to timm's own weights
    assert found.network_config.defaults == ["mean", "std"]
    load_trunk(file, timm="test_vit")
    assert "timm resized pos_embed from (1, 10, 64) to (1, 101, 64)" in caplog.text


def test_save_trunk__records_options_of_timm_networks(tmp_path):
    images = torch.randn(2, 3, 48, 48)
    for name, options in (
        ("test_vit", {"img_size": 48, "depth": 2}),
        ("resnet18", {"global_pool": "max"}),
    ):
        net = timm.create_model(name, num_classes=0, **options).eval()
        save_trunk(net, tmp_path / "in.torch")
        assert torch.equal(load_trunk(tmp_path / "in.torch")(images), net(images))


@pytest.mark.parametrize("options", [{"global_pool": "max"}, {"output_stride": 8}])
def test_timm_folder__keeps_resnet_options(options, tmp_path):
    """Without them, the weights also fit the plain ResNet, but its features were wrong."""
    net = timm.create_model("resnet18", num_classes=4, **options)
    timm.models.save_for_hf(net, tmp_path, model_args=options, safe_serialization=True)
    plain = timm.create_model(f"local-dir:{tmp_path}", pretrained=True, num_classes=0)
    images = torch.randn(2, 3, 64, 64)
    features = load_trunk(tmp_path / "model.safetensors")(images)
    assert torch.equal(features, plain.eval()(images))


def test_timm_folder__omits_metadata_of_timms_weights(tmp_path):
    save_trunk(WideResNet(18), tmp_path / "in.torch")
    export_checkpoint(tmp_path / "in.torch", tmp_path / "folder", "timm")
    config = json.loads((tmp_path / "folder" / "config.json").read_text())["pretrained_cfg"]
    assert not {"license", "tag", "paper_ids"} & set(config)
    network = timm.create_model(f"local-dir:{tmp_path / 'folder'}", pretrained=True)
    inputs = timm.data.resolve_model_data_config(network, use_test_size=True)
    assert inputs["input_size"] == (3, 224, 224)  # 288 for timm's own weights


def authors_convnext(net):
    """Rename tensors as in the ConvNeXt authors' files."""
    renamed = {}
    for name, tensor in net.state_dict().items():
        name = re.sub(r"^stem\.", "downsample_layers.0.", name)
        name = re.sub(r"^stages\.(\d)\.downsample\.", r"downsample_layers.\1.", name)
        name = re.sub(r"^stages\.(\d)\.blocks\.", r"stages.\1.", name)
        name = name.replace("conv_dw", "dwconv").replace("mlp.fc", "pwconv")
        renamed[name.replace("head.norm", "norm").replace("head.fc", "head")] = tensor
    return {"model": renamed}


def authors_dinov2(net):
    """Rename tensors as in DINOv2 files with registers, where the class token has a position."""
    state = net.state_dict()
    state["register_tokens"] = state.pop("reg_token")
    state["mask_token"] = torch.zeros(1, 384)
    no_position = torch.zeros(1, 1, 384)
    state["pos_embed"] = torch.cat([no_position, state["pos_embed"]], dim=1)
    return state


@pytest.mark.parametrize(
    ("name", "options", "convert"),
    [
        ("convnext_atto", {}, None),
        ("convnext_tiny", {"depths": (1, 1, 1, 1)}, authors_convnext),
        ("vit_small_patch14_reg4_dinov2", {"img_size": 28, "depth": 2}, authors_dinov2),
    ],
)
def test_timm_network__is_converted_by_timm(name, options, convert, tmp_path, caplog):
    net = timm.create_model(name, **options)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    content = net.state_dict() if convert is None else convert(net)
    file = save(content, tmp_path / "in.pth")
    found = load_trunk(file, timm=name, timm_options=options).net.state_dict()
    assert all(torch.equal(found[key], net.state_dict()[key]) for key in found)
    assert "downsample_layers" not in caplog.text


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("convnext_atto", {"depths": (2, 2, 9, 2)}, r"left over: stages\.2\.blocks\.6"),
        (
            "convnext_atto",
            {"dims": (48, 96, 192, 384)},
            "does not hold timm.s convnext_atto: most of",
        ),
        ("vit_tiny_patch16_224", {"patch_size": 8}, r"of another shape: patch_embed\.proj"),
        ("test_vit", {"in_chans": 5}, r"of another shape: patch_embed\.proj"),
    ],
)
def test_timm_network__with_other_options_is_refused(name, options, message, tmp_path):
    """timm's own conversion would resize patches and skip surplus blocks.

    Filters for five channels, cut to three, would read other bands as red, green and blue.
    """
    file = save(timm.create_model(name, **options).state_dict(), tmp_path / "in.pth")
    with pytest.raises(ValueError, match=message):
        load_trunk(file, timm=name)


def test_timm_network__accepts_other_numbers_of_channels(tmp_path):
    net = timm.create_model("test_vit")
    file = save(net.state_dict(), tmp_path / "in.pth")
    trunk = load_trunk(file, timm="test_vit", timm_options={"in_chans": 5})
    assert trunk(torch.zeros(1, 5, 160, 160)).shape == (1, 64)
    assert len(trunk.network_config.mean) == 5
    weight = trunk.net.state_dict()["patch_embed.proj.weight"]
    adapted = adapt_input_conv(5, net.state_dict()["patch_embed.proj.weight"])
    torch.testing.assert_close(weight, adapted)
    save_trunk(trunk, tmp_path / "five.torch")
    assert torch.equal(
        load_trunk(tmp_path / "five.torch").net.state_dict()["patch_embed.proj.weight"], weight
    )
    export_checkpoint(tmp_path / "five.torch", tmp_path / "folder", "timm")
    again = load_trunk(tmp_path / "folder" / "model.safetensors")
    assert torch.equal(again.net.state_dict()["patch_embed.proj.weight"], weight)


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "vit_b_16", "swin_t"])
def test_torchvision_network__is_named(name, tmp_path):
    with torch.device("meta"):
        names = list(torchvision.models.get_model(name).state_dict())
    file = save(dict.fromkeys(names, torch.zeros(1)), tmp_path / "in.pth")
    for timm_name in (None, "vit_tiny_patch16_224"):
        with pytest.raises(ValueError, match=r"(no ResNet|not hold).* Build .*network=module"):
            load_trunk(file, timm=timm_name)


def test_recorded_size__yields_to_a_chosen_img_size(tmp_path):
    """Figures are for the recorded size, unless the user builds the network for another one."""
    trunk = TimmTrunk("test_vit", {"img_size": 32})
    trunk.network_config = trunk.network_config.with_values("run", size=40)
    save_trunk(trunk, tmp_path / "trunk.torch")
    assert load_trunk(tmp_path / "trunk.torch").network_config.size == 40
    options = {"img_size": 48}
    chosen = load_trunk(tmp_path / "trunk.torch", timm="test_vit", timm_options=options)
    assert chosen.network_config.size == 48


def test_timm_export__describes_our_center_crop(tmp_path):
    save_trunk(TimmTrunk("test_resnet"), tmp_path / "trunk.torch")
    export_checkpoint(tmp_path / "trunk.torch", tmp_path / "out", "timm")
    written = json.loads((tmp_path / "out" / "config.json").read_text())["pretrained_cfg"]
    assert written["crop_pct"] == 7 / 8


def test_config_of_other_program__is_no_damaged_record(tmp_path):
    """transformers also writes config.json beside model.safetensors."""
    names = ("embeddings.cls_token", "encoder.layer.0.attention.attention.key.weight")
    save_file({name: torch.zeros(2, 2) for name in names}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"architectures": ["ViTModel"], "hidden_size": 2}')
    with pytest.raises(ValueError, match=r"holds no ResNet: .*network=module"):
        load_trunk(tmp_path / "model.safetensors")
