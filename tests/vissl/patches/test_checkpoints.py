"""Checkpoints that fit nothing are refused when they are loaded; all legal ones pass."""

import pytest
import torch
import torchvision
from safetensors.torch import save_file
from vissl.models import build_model
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin.checkpoints.compare import MismatchError
from pirl_plugin.checkpoints.load import load_trunk
from pirl_plugin.models.resnet import new_trunk
from tests.helpers.host_tools import CPU, run_tool

LINEAR = ["config=benchmark/pirl/linear_imagenet1k", "+config/pirl/linear=resnet18"]
IMAGENET = LINEAR[:1]  # on ResNet-50
PRETRAIN = ["config=pretrain/pirl/jigsaw_8node", "+config/pirl/models=resnet18"]


def compose(*overrides):
    composed = compose_hydra_configuration(list(overrides))
    return convert_to_attrdict(composed, dump_config=False)[1]


def load(overrides, checkpoint, **weights_init):
    """Build the host's model and load ``checkpoint`` the host's way; returns both."""
    config = compose(*overrides)
    config.MODEL.WEIGHTS_INIT.update({"PARAMS_FILE": "FILE", **weights_init})
    model = build_model(config.MODEL, config.OPTIMIZER)
    model.init_model_from_weights_params_file(config, checkpoint)
    return model


def checkpoint(depth=18, heads=None, **section):
    torch.manual_seed(7)
    model = {"trunk": new_trunk({"DEPTH": depth, **section}).state_dict(), "heads": heads or {}}
    return {"classy_state_dict": {"base_model": {"model": model}}}


@pytest.mark.parametrize("overrides", [LINEAR, PRETRAIN])
@pytest.mark.parametrize("heads", [{}, {"0.project.weight": torch.ones(128, 512)}])
def test_load__takes_a_trunk_with_or_without_heads(overrides, heads):
    given = checkpoint(heads=heads)
    trunk = load(overrides, given).trunk.state_dict()
    for name, value in given["classy_state_dict"]["base_model"]["model"]["trunk"].items():
        if "num_batches" not in name:
            (mine,) = [v for k, v in trunk.items() if k.removeprefix("base_model.") == name]
            assert torch.equal(mine, value), name


def test_load__takes_vissls_own_resnet_50_as_published():
    """Names as in VISSL's published PIRL weights, with that model's heads."""
    from vissl.models.trunks import MODEL_TRUNKS_REGISTRY

    config = compose("config=benchmark/pirl/linear_imagenet1k")
    trunk = MODEL_TRUNKS_REGISTRY["resnet"](config.MODEL, "resnet")
    heads = {"0.0.clf.0.weight": torch.ones(128, 2048), "1.clf.0.weight": torch.ones(128, 2048)}
    model = {"trunk": trunk.state_dict(), "heads": heads}
    given = {"classy_state_dict": {"base_model": {"model": model}}}
    loaded = load(["config=benchmark/pirl/linear_imagenet1k"], given).trunk.base_model
    name = "_feature_blocks.layer4.2.conv3.weight"
    assert torch.equal(loaded.state_dict()[name], trunk.state_dict()[name])


FEATURES_18 = "+config/pirl/linear=resnet18"
WITH_RESNET18 = [  # every benchmark that starts from a checkpoint, and pre-training
    PRETRAIN,
    LINEAR,
    ["config=benchmark/pirl/linear_places205", FEATURES_18],
    ["config=benchmark/pirl/linear_inaturalist18", FEATURES_18],
    ["config=benchmark/pirl/svm_voc07", FEATURES_18],
    ["config=benchmark/pirl/svm_voc07_low_shot", FEATURES_18],
    [
        "config=benchmark/pirl/semi_supervised_imagenet1k_1percent",
        "+config/pirl/finetune=resnet18",
    ],
    [
        "config=benchmark/pirl/semi_supervised_imagenet1k_10percent",
        "+config/pirl/finetune=resnet18",
    ],
    [
        "config=benchmark/pirl/quick_linear",
        "config.MODEL.TRUNK.PIRL_RESNET={DEPTH: 18, WIDTH_MULTIPLIER: 1}",
        "config.MODEL.HEAD.PARAMS=[[eval_mlp, {in_channels: 512, dims: [512, 10]}]]",
    ],
]


LAYOUTS = {
    "plain": (lambda state: state, {}),
    "marked by the host": (lambda state: {**state, "type": "consolidated"}, {}),
    "distributed": (lambda state: {"state_dict": {f"module.{n}": t for n, t in state.items()}}, {}),
    "no key": (lambda state: state, {"STATE_DICT_KEY_NAME": ""}),
}


@pytest.mark.parametrize(
    ("overrides", "layout"),
    [
        *[(overrides, "plain") for overrides in WITH_RESNET18],
        *[(overrides, layout) for overrides in (LINEAR, PRETRAIN) for layout in list(LAYOUTS)[1:]],
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_load__takes_torchvisions_resnet_as_it_is(overrides, layout):
    wrap, how = LAYOUTS[layout]
    weights = torchvision.models.resnet18().state_dict()  # with the classifier fc
    loaded = load(overrides, wrap(weights), **how).trunk.state_dict()
    for name in ("conv1.weight", "bn1.running_var", "layer4.1.conv2.weight"):
        (mine,) = [v for k, v in loaded.items() if k.endswith(f"_feature_blocks.{name}")]
        assert torch.equal(mine, weights[name]), name


def test_load__takes_torchvisions_names_with_a_prefix():
    weights = torchvision.models.resnet18().state_dict()
    how = {"STATE_DICT_KEY_NAME": "", "APPEND_PREFIX": "trunk._feature_blocks."}
    loaded = load(PRETRAIN, weights, **how).trunk.state_dict()
    assert torch.equal(loaded["_feature_blocks.conv1.weight"], weights["conv1.weight"])


def test_load__refuses_a_torchvision_resnet_of_another_depth():
    with pytest.raises(MismatchError, match=r"does not fit .*'pirl_resnet': .*layer1\.2"):
        load(LINEAR, torchvision.models.resnet34().state_dict())


@pytest.mark.parametrize("overrides", [LINEAR, PRETRAIN])
@pytest.mark.parametrize(
    ("given", "how", "message"),
    [
        (checkpoint(depth=10), {}, r"FILE does not fit .*'pirl_resnet': 40 of 100 .*layer1\.1"),
        (checkpoint(depth=34), {}, r"left over: layer1\.2\.conv1\.weight"),
        (checkpoint(depth=50), {}, r"layer1\.0\.conv1\.weight \(64, 64, 1, 1\), expected"),
        ({"model": {}}, {}, r"has no 'classy_state_dict', and .*holds no ResNet.*STATE_DICT_KEY"),
        (
            {"encoder.conv1.weight": torch.ones(1)},
            {"STATE_DICT_KEY_NAME": ""},
            r"100 of 100 missing",
        ),
    ],
)
def test_load__refuses_what_does_not_fit(overrides, given, how, message):
    with pytest.raises(MismatchError, match=message):
        load(overrides, given, **how)


@pytest.mark.parametrize(
    ("overrides", "depth", "width", "remedy"),
    [
        (IMAGENET, 10, 0.5, "a ResNet-10 of width 0.5; give +config/pirl/linear=resnet10"),
        (LINEAR, 50, 2, "a ResNet-50 of width 2; give +config/pirl/linear=resnet50_c2x"),
        (
            ["config=benchmark/pirl/quick_linear"],
            18,
            1,
            "a ResNet-18; give +config/pirl/linear=resnet18",
        ),
        (
            ["config=benchmark/pirl/semi_supervised_imagenet1k_1percent"],
            18,
            1,
            "a ResNet-18; give +config/pirl/finetune=resnet18",
        ),
        (PRETRAIN, 50, 1, "a ResNet-50; give +config/pirl/models=resnet50"),
        (IMAGENET, 18, 0.5, "a ResNet-18 of width 0.5; give config.MODEL.TRUNK the"),
    ],
)
def test_load__names_the_network_of_the_checkpoint(overrides, depth, width, remedy):
    """It printed nine hundred characters, and advised to leave the trunk at random."""
    given = checkpoint(depth, WIDTH_MULTIPLIER=width)
    with pytest.raises(MismatchError) as stopped:
        load(overrides, given)
    said = str(stopped.value)
    assert f"; the checkpoint is {remedy}" in said
    assert "SKIP_LAYERS" not in said
    assert "_feature_blocks" not in said
    assert said.count(".weight") + said.count(".bias") + said.count(".running") <= 2
    assert len(said) < 300


def test_load__advises_to_skip_layers_where_no_tensor_has_another_shape():
    given = checkpoint()
    trunk = given["classy_state_dict"]["base_model"]["model"]["trunk"]
    trunk.pop("_feature_blocks.layer4.1.bn2.weight")
    message = r"1 of 100 missing: layer4.1.bn2.weight; give .*\.SKIP_LAYERS$"
    with pytest.raises(MismatchError, match=message):
        load(LINEAR, given)
    trunk["_feature_blocks.layer4.1.bn2.weight"] = torch.ones(3)
    with pytest.raises(MismatchError, match=r"bn2.weight \(3,\), expected .* the checkpoint$"):
        load(LINEAR, given)


def test_load__leaves_out_what_the_user_says():
    loaded = load(LINEAR, checkpoint(depth=10), SKIP_LAYERS=["layer", "num_batches_tracked"])
    given = checkpoint(depth=10)["classy_state_dict"]["base_model"]["model"]["trunk"]
    name = "_feature_blocks.conv1.weight"
    assert torch.equal(loaded.trunk.base_model.state_dict()[name], given[name])


def test_approaches_of_vissl__start_as_without_the_plugin():
    name = "benchmark/linear_image_classification/imagenet1k/eval_resnet_8gpu_transfer_in1k_linear"
    empty = {"classy_state_dict": {"base_model": {"model": {"trunk": {}, "heads": {}}}}}
    load([f"config={name}"], empty)  # the host says of each weight that it is not there


class Planted:
    """A pickle of this object creates a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pth", "safetensors", "numpy", "trusted"])
def test_host__starts_from_files_that_other_libraries_write(kind, image_folder, tmp_path):
    weights = torchvision.models.resnet18().state_dict()
    file, trust = tmp_path / "resnet18.pth", []
    if kind == "safetensors":
        file = tmp_path / "resnet18.safetensors"
        save_file(weights, file)
    elif kind == "numpy":
        torch.save({name: tensor.numpy() for name, tensor in weights.items()}, file)
    elif kind == "trusted":
        torch.save({"state_dict": weights, "args": Planted(tmp_path / "ran")}, file)
        trust = ["+config.MODEL.WEIGHTS_INIT.TRUST_PICKLE=True"]
    else:
        torch.save(weights, file)
    run_tool(
        "run_distributed_engines.py",
        *LINEAR,
        *CPU,
        f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]",
        f"config.DATA.TEST.DATA_PATHS=[{image_folder / 'val'}]",
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={file}",
        f"config.CHECKPOINT.DIR={tmp_path / 'out'}",
        "config.OPTIMIZER.num_epochs=3",
        "config.DATA.TRAIN.DATA_LIMIT=8",
        "config.DATA.TEST.DATA_LIMIT=4",
        *trust,
    )
    written = load_trunk(tmp_path / "out" / "checkpoint.torch").state_dict()
    for name in ("conv1.weight", "bn1.running_var", "layer4.1.conv2.weight"):
        assert torch.equal(written[f"_feature_blocks.{name}"], weights[name])
