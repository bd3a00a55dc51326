"""Any network can be saved; what this package cannot build is loaded into the user's module."""

import copy

import pytest
import timm
import torch
import torchvision
from torch import nn

import pirl_plugin as pirl
from pirl_plugin import cli
from pirl_plugin.system.failures import Refused


def without_pooling(**options):
    network = torchvision.models.resnet18(**options)
    network.maxpool = nn.Identity()
    return network


def with_projection():
    resnet = torchvision.models.resnet18()
    resnet.fc = nn.Identity()
    return nn.Sequential(resnet, nn.Linear(512, 16))


class Branches(nn.Module):
    """A network with no name in any library."""

    def __init__(self):
        super().__init__()
        self.left = nn.Conv2d(3, 4, 3)
        self.right = nn.Conv2d(3, 4, 5)

    def forward(self, images):
        return torch.cat([self.left(images).mean((2, 3)), self.right(images).mean((2, 3))], 1)


OWN = {
    "MobileNetV3": torchvision.models.mobilenet_v3_small,
    "ResNet": lambda: torchvision.models.resnet18(norm_layer=lambda c: nn.BatchNorm2d(c, eps=1e-3)),
    "ResNet, grouped": lambda: torchvision.models.resnext50_32x4d(),
    "ResNet, dilated": lambda: torchvision.models.resnet50(
        replace_stride_with_dilation=[False, False, True]
    ),
    "ResNet, without pooling": without_pooling,
    "ResNet, of timm": lambda: timm.create_model("resnet18", act_layer=nn.SiLU),
    "Sequential": with_projection,
    "Branches": Branches,
}


def test_load__ignores_layers_the_module_lacks_but_no_deeper_parts(tmp_path):
    """A head is left out of a trunk; more blocks belong to another network."""
    parts = {"body": nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), "fc1": nn.Linear(2, 2)}
    network = nn.ModuleDict(parts)
    tensors = network.state_dict()
    torch.save({**tensors, "fc2.weight": torch.ones(3, 2)}, tmp_path / "head.pth")
    pirl.load_trunk(tmp_path / "head.pth", network=network)
    torch.save({**tensors, "body.2.weight": torch.ones(2, 2)}, tmp_path / "deeper.pth")
    with pytest.raises(Refused, match=r"1 left over: body\.2\.weight"):
        pirl.load_trunk(tmp_path / "deeper.pth", network=network)


def distinct(network):
    """Give batch norms statistics that a new network lacks."""
    for buffer in network.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    return network.eval()


@pytest.mark.parametrize("kind", OWN)
def test_own_network__is_saved_and_loaded_into_a_module(kind, tmp_path):
    torch.manual_seed(0)
    trunk = distinct(OWN[kind]())
    file = tmp_path / "trunk.torch"
    data = pirl.ImageDataset([torch.zeros(3, 70, 70, dtype=torch.uint8)] * 2, pirl.ImageViews(64))
    pirl.PIRL(trunk, data)
    pirl.save_trunk(trunk, file)
    name = kind.partition(",")[0]
    with pytest.raises(Refused, match=rf"holds a {name}, which only your own code can build"):
        pirl.load_trunk(file)
    loaded = pirl.load_trunk(file, network=OWN[kind]())
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(loaded(images), trunk(images))
    assert loaded.network_config.size == 64
    with pytest.raises(Refused, match=r"pass one: pirl_plugin\.load_trunk\(.*, network=module\)"):
        cli.run(["export", "--checkpoint", str(file), "--to", "vissl", "--out", f"{file}.2"])


@pytest.mark.parametrize(
    "trunk",
    [
        torchvision.models.resnet18(),  # load_trunk leaves the classifier out
        nn.SyncBatchNorm.convert_sync_batchnorm(torchvision.models.resnet18()),
        timm.create_model("resnet10t"),
        timm.create_model("test_vit", num_classes=0, img_size=32),
    ],
    ids=["torchvision", "SyncBatchNorm", "timm", "timm's options"],
)
def test_known_network__is_built_again(trunk, tmp_path):
    pirl.save_trunk(trunk, tmp_path / "trunk.torch")
    assert not pirl.load_trunk(tmp_path / "trunk.torch").network_config.network_class


def test_network__is_found_in_a_larger_checkpoint_and_checked(tmp_path):
    first = Branches()
    second = copy.deepcopy(first)
    model = nn.ModuleDict({"a": first, "b": nn.Linear(8, 3)})
    file = tmp_path / "in.ckpt"
    torch.save({"state_dict": {f"model.{k}": v for k, v in model.state_dict().items()}}, file)
    for tensor in second.state_dict().values():
        tensor.zero_()
    assert pirl.load_trunk(file, network=second) is second
    assert torch.equal(second.left.weight, first.left.weight)
    second.right = nn.Conv2d(3, 5, 5)
    with pytest.raises(Refused, match=r"does not match Branches: 2 of another shape: right.weight"):
        pirl.load_trunk(file, network=second)
    with pytest.raises(
        Refused, match="does not hold Linear: most of its 2 tensors, such as weight"
    ):
        pirl.load_trunk(file, network=nn.Linear(2, 2, bias=True))
