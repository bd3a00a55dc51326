"""The PIRL module compared with its components for each kind of view."""

import pytest
import timm
import torch
import torchvision
from torch import nn
from torch.utils.data import Subset

import pirl_plugin as pirl

PHOTOS = [
    torch.randint(
        256, (3, 40, 50), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )
    for seed in range(12)
]
VIEWS = {
    "jigsaw": pirl.JigsawViews(image_size=32, patches_crop_size=48, patch_size=12),
    "rotation": pirl.RotationViews(image_size=32),
    "image only": pirl.ImageViews(image_size=32),
    "floats": lambda image: {"images": torch.ones(3, 32, 32), "other": torch.zeros(3, 8, 8)},
}


def make(views="jigsaw"):
    torch.manual_seed(0)
    data = pirl.ImageDataset(PHOTOS, VIEWS[views])
    model = pirl.PIRL(pirl.WideResNet(10, width=0.125), data)
    return model, data, pirl.collate_views([data[row] for row in (2, 7, 5)])


def normalized(view):
    return pirl.normalize_images(view) if view.dtype == torch.uint8 else view


@pytest.mark.parametrize("views", VIEWS)
def test_forward_and_update__match_separate_components(views):
    model, _, batch = make(views)
    reference, _, _ = make(views)
    value = model(batch)
    value.backward()
    model.update()

    f_image = reference.f(reference.trunk(normalized(batch["images"])))
    g_transformed = [g(reference.trunk(normalized(batch[name]))) for name, g in reference.g.items()]
    expected = reference.loss(f_image, g_transformed or None, batch["index"])
    expected.backward()
    reference.loss.update(batch["index"], f_image)
    assert torch.equal(value, expected)
    for one, other in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
    assert torch.equal(model.bank.rows, reference.bank.rows)
    assert model.bank.visited.nonzero().flatten().tolist() == [2, 5, 7]


def test_update__needs_new_forward_pass():
    model, _, batch = make()
    with torch.no_grad():
        model(batch)  # a test phase
    for _ in range(2):
        with pytest.raises(ValueError, match=r"Call update\(\) after the optimizer's step"):
            model.update()
        model(batch)
        model.update()


def test_fill_bank__stores_embeddings():
    model, _, batch = make()
    model.eval()
    model.fill_bank([batch])
    f_image = model.f(model.trunk(pirl.normalize_images(batch["images"])))
    torch.testing.assert_close(
        model.bank.rows[batch["index"]], nn.functional.normalize(f_image), rtol=1e-5, atol=1e-6
    )


def test_trunk__keeps_state():
    torch.manual_seed(0)
    trunk = pirl.WideResNet(10, width=0.125)
    trunk.bn1.eval()  # frozen
    before = {name: value.clone() for name, value in trunk.state_dict().items()}
    pirl.PIRL(trunk, pirl.ImageDataset(PHOTOS, VIEWS["jigsaw"]))
    assert trunk.training
    assert not trunk.bn1.training
    for name, value in trunk.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_pirl__refuses_views_without_image():
    data = pirl.ImageDataset(PHOTOS, lambda image: {"left": torch.zeros(3, 8, 8)})
    with pytest.raises(ValueError, match="The views are left, but PIRL needs one named images"):
        pirl.PIRL(pirl.WideResNet(10, width=0.125), data)


def test_pirl__refuses_loss_with_different_number_of_images():
    data = pirl.ImageDataset(PHOTOS, VIEWS["jigsaw"])
    loss = pirl.PIRLLoss(len(data) + 1, num_negatives=2)
    with pytest.raises(ValueError, match="The loss has 13 rows, but data has 12 images"):
        pirl.PIRL(pirl.WideResNet(10, width=0.125), data, loss)


@pytest.mark.parametrize("kind", [len, lambda data: Subset(data, range(8)), list])
def test_pirl__refuses_other_data_types(kind):
    data = pirl.ImageDataset(PHOTOS, VIEWS["image only"])
    with pytest.raises(ValueError, match=r"data: expected an ImageDataset, got (int|Subset|list)"):
        pirl.PIRL(pirl.WideResNet(10, width=0.125), kind(data))


def without_classifier(network):
    network.fc = nn.Identity()
    return network


TRUNKS = {
    "ours": lambda: pirl.WideResNet(10, width=0.125),
    "torchvision": lambda: without_classifier(torchvision.models.resnet18()),
    "timm": lambda: timm.create_model("resnet10t", num_classes=0),
}


@pytest.mark.parametrize("channels", [1, 2, 7])
@pytest.mark.parametrize("kind", TRUNKS)
def test_trunk__adapts_to_channels_as_timm_does(kind, channels, tmp_path, caplog):
    adapt_input_conv = timm.models.adapt_input_conv
    photos = [torch.rand(channels, 40, 50) * 900 for _ in range(4)]
    data = pirl.ImageDataset(photos, VIEWS["image only"])
    trunk = TRUNKS[kind]()
    parameters = list(trunk.parameters())
    expected = adapt_input_conv(channels, parameters[0].clone())
    pirl.PIRL(trunk, data)
    assert torch.equal(parameters[0], expected)  # the same parameter
    assert f"now reads {channels} channel" in caplog.text
    pirl.save_trunk(trunk, tmp_path / "trunk.torch")
    config = pirl.load_trunk(tmp_path / "trunk.torch").network_config
    assert (config.channels, config.dtype) == (channels, "float32")
    assert config.mean == trunk.network_config.mean
    features, _ = pirl.extract_features(trunk, photos, size=32)
    assert features.isfinite().all()


def test_pirl__refuses_trunk_without_pooling():
    """Features of images and patches would differ in width."""
    data = pirl.ImageDataset(PHOTOS, VIEWS["jigsaw"])
    trunk = nn.Conv2d(3, 8, 3)
    with pytest.raises(ValueError, match=r"features of shape \(2, 8, 30, 30\): .*pooling"):
        pirl.PIRL(trunk, data)


NEEDS = {
    "multiples": ("test_vit", {"dynamic_img_size": True}, "images of 60 px", "multiples of 16 px"),
    "any option": (
        "vit_tiny_patch16_224",
        {"depth": 1},
        "images of 60 px",
        "timm's network with dynamic_img_size=True, and make all views multiples of 16 px",
    ),
    "another option": (
        "swin_tiny_patch4_window7_224",
        {"depths": (1, 1, 1, 1), "embed_dim": 8, "num_heads": (1, 1, 1, 1)},
        "images of 60 px",
        "timm's network with strict_img_size=False",
    ),
    "at least": ("convnext_atto", {}, "patches of 20 px", "at least 32 px: pass patch_size=32"),
}


@pytest.mark.parametrize("case", NEEDS)
def test_pirl__refuses_trunks_for_other_sizes(case):
    name, options, view, remedy = NEEDS[case]
    trunk = timm.create_model(name, num_classes=0, **options)
    views = pirl.JigsawViews(image_size=60, patches_crop_size=96, patch_size=20)
    with pytest.raises(ValueError, match=rf"cannot process {view} \(.*[^.]\)\. .*{remedy}"):
        pirl.PIRL(trunk, pirl.ImageDataset(PHOTOS, views))


class TwoOutputs(nn.Module):
    """A network that returns a second output in training, as GoogLeNet does."""

    def __init__(self):
        super().__init__()
        self.net = pirl.WideResNet(10, width=0.125)

    def forward(self, images):
        features = self.net(images)
        return (features, features) if self.training else features


def test_pirl__refuses_several_outputs_and_restores_the_trunk():
    data = pirl.ImageDataset(PHOTOS, VIEWS["jigsaw"])
    trunk = TwoOutputs()
    before = [buffer.clone() for buffer in trunk.buffers()]
    with pytest.raises(ValueError, match="returned a tuple without pooled features"):
        pirl.PIRL(trunk, data)
    assert all(map(torch.equal, trunk.buffers(), before))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("is_before", [True, False])
def test_model__follows_the_trunks_dtype(dtype, is_before):
    data = pirl.ImageDataset(PHOTOS, VIEWS["jigsaw"])
    trunk = pirl.WideResNet(10, width=0.125)
    model = pirl.PIRL(trunk.to(dtype) if is_before else trunk, data).to(dtype)
    batch = pirl.collate_views([data[row] for row in (2, 7, 5)])
    model.fill_bank([batch])
    model(batch).backward()
    model.update()
    assert {parameter.grad.dtype for parameter in model.parameters()} == {dtype}
    assert model.bank.rows.dtype == torch.float32


def test_pirl__warns_about_trunk_with_classifier(caplog):
    data = pirl.ImageDataset(PHOTOS, VIEWS["jigsaw"])
    trunk = torchvision.models.resnet18(num_classes=7)
    pirl.PIRL(trunk, data)
    assert "The trunk ends in a classifier, fc = Linear" in caplog.text
    caplog.clear()
    trunk.fc = nn.Identity()
    pirl.PIRL(trunk, data, pirl.PIRLLoss(len(data), num_negatives=2))
    assert caplog.text == ""


def test_pirl__logs_default_loss_settings(caplog):
    make("image only")
    (message,) = caplog.messages
    assert "info_nce, temperature 0.2, 6 negatives, lambda_invariance 0." in message


@pytest.mark.parametrize("dtype", ["uint16", "uint8"])
def test_integer_views_of_the_users__are_normalized_with_measured_statistics(dtype, tmp_path):
    photos = [
        (torch.rand(5, 40, 50, generator=torch.Generator().manual_seed(seed)) * 250).to(
            getattr(torch, dtype)
        )
        for seed in range(4)
    ]
    data = pirl.ImageDataset(photos, lambda image: image[:, :32, :32])
    trunk = pirl.WideResNet(10, width=0.125, in_channels=5)
    seen = []
    trunk.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model = pirl.PIRL(trunk, data)
    assert trunk.network_config.mean == data.source.statistics().mean
    assert trunk.network_config.statistics == "measured"
    model(pirl.collate_views([data[row] for row in range(4)]))
    assert seen[-1].mean(dim=(0, 2, 3)).abs().max() < 0.1
    assert (seen[-1].std(dim=(0, 2, 3)) - 1).abs().max() < 0.1
    # A larger set keeps the statistics of its weights.
    before = trunk.network_config.mean
    larger = [*photos, torch.full((5, 40, 50), 9).to(getattr(torch, dtype))]
    pirl.PIRL(trunk, pirl.ImageDataset(larger, VIEWS["image only"]))
    assert trunk.network_config.mean == before
    with pytest.raises(ValueError, match="cannot be measured"):
        pirl.PIRL(trunk, pirl.ImageDataset(photos, lambda image: image[:4, :32, :32]))
