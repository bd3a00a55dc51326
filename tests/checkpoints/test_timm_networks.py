"""Read, export and reload timm networks with random weights."""

import pytest
import timm
import torch

from pirl_plugin.checkpoints.export import export_checkpoint
from pirl_plugin.checkpoints.load import load_trunk

NAMES = """
resnet18 resnet26 resnet50 resnext50_32x4d resnet50d res2net50_26w_4s seresnet18 skresnet18
resnest14d hrnet_w18_small densenet121 dla34 tf_efficientnet_lite0 mobilenetv3_small_050
regnety_002 repvgg_a0 ghostnet_050 rexnet_100 inception_v3 nfnet_f0 convnext_atto
vit_tiny_patch16_224 deit_tiny_distilled_patch16_224 swin_tiny_patch4_window7_224 levit_128s
mixer_s32_224 xcit_nano_12_p8_224 poolformer_s12 pvt_v2_b0 mobilevit_xxs edgenext_xx_small
maxvit_rmlp_pico_rw_256
""".split()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
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
        assert torch.equal(trunk(images)[0], bare(images))
        export_checkpoint(tmp_path / "in.pth", tmp_path / "out", "timm", timm=name)
        again = load_trunk(tmp_path / "out" / "model.safetensors")
        assert torch.equal(again(images)[0], bare(images))
