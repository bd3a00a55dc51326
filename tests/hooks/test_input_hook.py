"""The input hook: what torchvision's ToTensor and Normalize do, where the model runs."""

from types import SimpleNamespace

import pytest
import torch
from torchvision.transforms import functional as tv

from pirl_plugin.data.statistics import IMAGENET_MEAN, IMAGENET_STD
from pirl_plugin.hooks.input_hook import PIRLInputHook


def test_prepare__equals_to_tensor_and_normalize():
    image = torch.randint(0, 256, (2, 3, 5, 7), dtype=torch.uint8)
    expected = tv.normalize(image.float() / 255, list(IMAGENET_MEAN), list(IMAGENET_STD))
    prepared = PIRLInputHook().prepare({"images": image, "label": torch.arange(2)})
    torch.testing.assert_close(prepared["images"], expected, atol=1e-5, rtol=0)
    assert prepared["images"].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(prepared["label"], torch.arange(2))


def test_prepare__leaves_floats_alone():
    images = torch.randn(2, 3, 4, 4)
    assert PIRLInputHook().prepare(images) is images


def test_on_start__hangs_before_the_model_and_runs_it_in_bfloat16():
    model = torch.nn.Conv2d(3, 4, 3)
    hook = PIRLInputHook(autocast="bfloat16")
    hook.on_start(SimpleNamespace(base_model=model, device=torch.device("cpu")))
    assert model(torch.zeros(1, 3, 8, 8, dtype=torch.uint8)).dtype == torch.bfloat16


def test_hook__refuses_an_autocast_that_needs_a_scaler():
    with pytest.raises(ValueError, match="autocast = 'float16': expected null or bfloat16"):
        PIRLInputHook(autocast="float16")
