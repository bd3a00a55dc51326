"""Checkpoints that are not there, or that fit nothing, are refused; all legal ones pass."""

import pytest
import torch
from host_tools import run_tool, write_checkpoint
from vissl.models import build_model
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin.host.checkpoints import check_checkpoint
from pirl_plugin.models.resnet import new_trunk
from pirl_plugin.models.weights import MisfitError

LINEAR = ["config=benchmark/pirl/linear_imagenet1k", "+config/pirl/linear=resnet18"]
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


def checkpoint(depth=18, heads=None):
    torch.manual_seed(7)
    model = {"trunk": new_trunk({"DEPTH": depth}).state_dict(), "heads": heads or {}}
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


def test_load__takes_torchvisions_names_with_a_prefix():
    import torchvision

    weights = torchvision.models.resnet18().state_dict()  # with the classifier fc
    how = {"STATE_DICT_KEY_NAME": "", "APPEND_PREFIX": "trunk._feature_blocks."}
    loaded = load(PRETRAIN, weights, **how).trunk.state_dict()
    assert torch.equal(loaded["_feature_blocks.conv1.weight"], weights["conv1.weight"])


@pytest.mark.parametrize("overrides", [LINEAR, PRETRAIN])
@pytest.mark.parametrize(
    ("given", "how", "message"),
    [
        (checkpoint(depth=10), {}, r"FILE does not fit .*'pirl_resnet': 40 of 100 .*layer1\.1"),
        (checkpoint(depth=34), {}, r"parameters have no place: trunk.*layer1\.2\.conv1\.weight"),
        (checkpoint(depth=50), {}, r"layer1\.0\.conv1\.weight is \(64, 64, 1, 1\) and not"),
        ({"model": {}}, {}, r"has no 'classy_state_dict' \(found model, …\).*STATE_DICT_KEY_NAME"),
        (
            {"encoder.conv1.weight": torch.ones(1)},
            {"STATE_DICT_KEY_NAME": ""},
            r"100 of 100 parameters are missing",
        ),
    ],
)
def test_load__refuses_what_does_not_fit(overrides, given, how, message):
    with pytest.raises(MisfitError, match=message):
        load(overrides, given, **how)


def test_load__leaves_out_what_the_user_says():
    loaded = load(LINEAR, checkpoint(depth=10), SKIP_LAYERS=["layer", "num_batches_tracked"])
    given = checkpoint(depth=10)["classy_state_dict"]["base_model"]["model"]["trunk"]
    name = "_feature_blocks.conv1.weight"
    assert torch.equal(loaded.trunk.base_model.state_dict()[name], given[name])


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (LINEAR, r"WEIGHTS_INIT\.PARAMS_FILE is 'CHECKPOINT'"),
        (["config=benchmark/pirl/ensemble_imagenet1k"], r"PARAMS_FILES\[0\] is 'CHECKPOINT_1'"),
    ],
)
def test_check_checkpoint__names_what_is_not_there(overrides, key):
    with pytest.raises(
        SystemExit, match=f"{key}, which is not a file that exists: name"
    ) as stopped:
        check_checkpoint(compose(*overrides))
    assert len(str(stopped.value).splitlines()) == 1


def test_check_checkpoint__accepts_files_and_random_initialisation(tmp_path):
    file = write_checkpoint(tmp_path / "trunk.torch")
    for value in (file, ""):
        check_checkpoint(compose(*LINEAR, f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={value}"))


def test_host__ends_a_misfit_in_one_sentence(image_folder, tmp_path):
    file = write_checkpoint(tmp_path / "small.torch", DEPTH=10)
    result = run_tool(
        "run_distributed_engines.py",
        *LINEAR,
        "+config/pirl/machines=cpu",
        f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]",
        f"config.DATA.TEST.DATA_PATHS=[{image_folder / 'val'}]",
        f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={file}",
        f"config.CHECKPOINT.DIR={tmp_path / 'out'}",
        check=False,
    )
    assert result.returncode == 1
    assert f"pirl_plugin: {file} does not fit the trunk 'pirl_resnet': 40 of 100" in result.stderr
    assert "Traceback" not in result.stderr
