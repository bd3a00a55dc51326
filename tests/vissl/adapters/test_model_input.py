"""Model input: equal to torchvision's ToTensor and Normalize, on the model's device."""

import copy

import pytest
import torch
from torchvision.transforms import functional as tv

from pirl_plugin.models.resnet import WideResNet
from pirl_plugin.views import IMAGENET_MEAN, IMAGENET_STD
from pirl_plugin.vissl.adapters.model_input import prepare_batch, prepare_model
from pirl_plugin.vissl.sections import InputSettings

CPU = torch.device("cpu")


def prepare(model, **settings):
    config = {
        "DATA": {"TRAIN": {"TRANSFORMS": []}},
        "LOSS": {"name": "pirl_loss"},
        "HOOKS": {"PIRL_INPUT": settings},
    }
    prepare_model(model, config, CPU)


def test_prepare__matches_to_tensor_and_normalize():
    image = torch.randint(0, 256, (2, 3, 5, 7), dtype=torch.uint8)
    expected = tv.normalize(image.float() / 255, list(IMAGENET_MEAN), list(IMAGENET_STD))
    prepared = prepare_batch(
        {"images": image, "label": torch.arange(2)}, InputSettings(), torch.channels_last
    )
    torch.testing.assert_close(prepared["images"], expected, atol=1e-5, rtol=0)
    assert prepared["images"].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(prepared["label"], torch.arange(2))
    floats = torch.randn(2, 3, 4, 4)
    assert prepare_batch(floats, InputSettings(), torch.channels_last) is floats


def test_prepare_model__prepares_input_and_runs_model_in_bfloat16():
    model = torch.nn.Conv2d(3, 4, 3)
    prepare(model, autocast="bfloat16")
    assert model(torch.zeros(1, 3, 8, 8, dtype=torch.uint8)).dtype == torch.bfloat16


def test_settings__refuse_autocast_with_scaler():
    with pytest.raises(ValueError, match="autocast = 'float16': expected null or bfloat16"):
        InputSettings(autocast="float16")


def test_prepare_model__matches_weight_layout_to_input():
    model = WideResNet(10, width=0.25)
    prepared = copy.deepcopy(model)
    prepare(prepared, channels_last=False)
    assert prepared.state_dict()["conv1.weight"].is_contiguous()
    prepare(prepared)
    weight = prepared.state_dict()["conv1.weight"]
    assert weight.is_contiguous(memory_format=torch.channels_last)
    images = torch.randn(2, 3, 64, 64)
    found = prepared(images.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(found, model(images), rtol=1e-4, atol=1e-5)


def test_prepare_model__compiles_trunk_and_keeps_names():
    model = torch.nn.ModuleDict({"trunk": WideResNet(10, width=0.25)})
    plain = copy.deepcopy(model)
    prepare(model, compile=True)
    assert model["trunk"]._compiled_call_impl is not None
    assert list(model.state_dict()) == list(plain.state_dict())
    plain.load_state_dict(model.state_dict())
    assert not InputSettings().compile


@pytest.mark.slow  # the C++ compiler takes a minute
def test_compiled_model__gives_same_features_and_gradients():
    model = WideResNet(10, width=0.25)
    compiled = copy.deepcopy(model)
    prepare(compiled, compile=True)
    images = torch.randn(2, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    for each in (model, compiled):
        each(images).square().sum().backward()
    for mine, expected in zip(compiled.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, expected.grad, rtol=1e-3, atol=1e-3)


def test_prepare_model__gives_gradients_the_weight_layout():
    """Otherwise DistributedDataParallel, whose buckets follow the weights, warns."""
    model = WideResNet(10)
    prepare(model)
    images = torch.randn(2, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    model(images).sum().backward()
    for weight in model.parameters():
        assert weight.grad.stride() == weight.stride()
