"""Weights that fit nothing are refused when VISSL loads them; all valid weights load."""

import functools

import pytest
import timm
import torch
import torchvision
from vissl.models import build_model

from pirl_plugin.checkpoints.export import export_checkpoint
from pirl_plugin.checkpoints.write import vissl_state
from pirl_plugin.models.resnet import WideResNet
from pirl_plugin.vissl.adapters.weights import load_initial_weights
from tests.helpers.configs import compose

LINEAR = ("config=benchmark/pirl/linear_imagenet1k", "+config/pirl/linear=resnet18")
PRETRAIN = ("config=pretrain/pirl/jigsaw_8node", "+config/pirl/models=resnet18")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@functools.cache
def built(overrides):
    config = compose(*overrides)
    return build_model(config.MODEL, config.OPTIMIZER)


def load(overrides, checkpoint, **weights_init):
    """Load a file containing ``checkpoint`` into VISSL's model."""
    torch.save(checkpoint, "FILE")
    config = compose(*overrides)
    config.MODEL.WEIGHTS_INIT.update({"PARAMS_FILE": "FILE", **weights_init})
    return load_initial_weights(config, built(overrides))


def checkpoint(depth=18, heads=None):
    torch.manual_seed(7)
    model = {"trunk": vissl_state(WideResNet(depth)), "heads": heads or {}}
    return {"classy_state_dict": {"base_model": {"model": model}}}


@pytest.mark.parametrize("overrides", [LINEAR, PRETRAIN])
def test_load__accepts_own_and_torchvision_weights(overrides):
    given = checkpoint(heads={"0.project.weight": torch.ones(128, 512)})
    theirs = torchvision.models.resnet18().state_dict()  # includes the classifier fc
    ours = given["classy_state_dict"]["base_model"]["model"]["trunk"][
        "_feature_blocks.conv1.weight"
    ]
    distributed = {"state_dict": {f"module.{n}": t + 1 for n, t in theirs.items()}}
    for content, expected in (
        (given, ours),
        (theirs, theirs["conv1.weight"]),
        (distributed, theirs["conv1.weight"] + 1),
    ):
        loaded = load(overrides, content).trunk.state_dict()
        (mine,) = [v for k, v in loaded.items() if k.endswith("_feature_blocks.conv1.weight")]
        assert torch.equal(mine, expected)


@pytest.mark.parametrize("overrides", [LINEAR, PRETRAIN])
def test_load__refuses_mismatched_weights(overrides, subtests):
    for given, message in (
        (checkpoint(depth=10), r"FILE does not fit .*'pirl_resnet': 40 of 100 "),
        (checkpoint(depth=34), r"left over: .*layer1\.2\.conv1\.weight"),
        ({"model": {}}, r"FILE holds no ResNet"),
    ):
        with subtests.test(message=message), pytest.raises(ValueError, match=message):
            load(overrides, given)


def test_load__skips_requested_layers():
    loaded = load(LINEAR, checkpoint(depth=10), SKIP_LAYERS=["layer", "num_batches_tracked"])
    given = checkpoint(depth=10)["classy_state_dict"]["base_model"]["model"]["trunk"]
    name = "_feature_blocks.conv1.weight"
    assert torch.equal(loaded.trunk.base_model.state_dict()[name], given[name])


def test_load__reads_timm_config_beside_weights(tmp_path):
    """VISSL supports neither safetensors nor config.json."""
    torch.save(timm.create_model("test_vit", num_classes=0).state_dict(), tmp_path / "in.pth")
    export_checkpoint(tmp_path / "in.pth", tmp_path / "out", "timm", timm="test_vit")
    config = compose(
        "config=benchmark/pirl/finetune",
        "+config/pirl/finetune=timm",
        "config.MODEL.TRUNK.PIRL_TIMM.NAME=test_vit",
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={tmp_path / 'out' / 'model.safetensors'}",
    )
    model = load_initial_weights(config, build_model(config.MODEL, config.OPTIMIZER))
    expected = torch.load(tmp_path / "in.pth", weights_only=True)["cls_token"]
    assert torch.equal(model.trunk.state_dict()["net.cls_token"], expected)


def test_git_main_options__are_passed_on():
    torch.save(torchvision.models.resnet18().state_dict(), "FILE")
    config = compose(*LINEAR, "config.MODEL.WEIGHTS_INIT.PARAMS_FILE=FILE")
    seen = {}

    class Model:
        def state_dict(self):
            return {}

        def init_model_from_weights_params_file(self, config, content, **options):
            seen.update(options)

    config.MODEL.WEIGHTS_INIT.APPEND_PREFIX = "trunk."  # then VISSL compares the names
    load_initial_weights(config, Model(), strict=True)
    assert seen == {"strict": True}


def test_vissl_approaches__start_as_without_the_plugin():
    name = "benchmark/linear_image_classification/imagenet1k/eval_resnet_8gpu_transfer_in1k_linear"
    config = compose(f"config={name}")
    model = build_model(config.MODEL, config.OPTIMIZER)
    # VISSL reports every weight as missing.
    empty = {"classy_state_dict": {"base_model": {"model": {"trunk": {}, "heads": {}}}}}
    model.init_model_from_weights_params_file(config, empty)
    assert config.TRAINER.TASK_NAME == "self_supervision_task"
