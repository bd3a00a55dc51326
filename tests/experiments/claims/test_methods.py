"""Each method's run, composed by the host: one budget, one trunk, one recipe."""

from pathlib import Path

import pytest
import torch

from pirl_plugin.experiments.claims.methods import DEFAULT_METHODS, METHODS, pretraining
from pirl_plugin.experiments.claims.scales import SCALES, autocast, scale_with
from pirl_plugin.experiments.data import Data
from pirl_plugin.utils.our_configs import is_ours
from tests.helpers.configs import compose

QUICK = SCALES["quick"]
DATA = Data(Path("photos/train"), Path("photos/val"), 10_000, 20)
TRAINED = [method for method in METHODS if method != "random"]


def composed(method, scale="quick", epochs=24, seed=3, extra=(), recipe="paper"):
    return compose(*pretraining(method, scale_with(scale, recipe), DATA, epochs, seed, extra))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("method", TRAINED)
def test_method__has_the_scales_trunk_batch_and_schedule(method, scale):
    size, config = SCALES[scale], composed(method, scale)
    assert config.MODEL.TRUNK.NAME == "pirl_resnet"
    trunk = dict(config.MODEL.TRUNK.PIRL_RESNET)
    assert trunk.pop("SMALL_STEM", False) is False
    assert trunk == size.trunk
    assert config.DATA.TRAIN.BATCHSIZE_PER_REPLICA == size.batch
    assert config.DATA.TRAIN.DATA_PATHS == ["photos/train"]
    rate = config.OPTIMIZER.param_schedulers.lr
    assert not rate.auto_lr_scaling.auto_scale
    assert (rate.name, rate.start_value, rate.update_interval) == ("cosine", size.rate, "step")
    assert rate.end_value == pytest.approx(size.rate / 1000)
    assert (config.OPTIMIZER.num_epochs, config.SEED_VALUE) == (24, 3)
    assert (config.OPTIMIZER.weight_decay, config.OPTIMIZER.momentum) == (1e-4, 0.9)
    assert not config.OPTIMIZER.nesterov
    assert not config.OPTIMIZER.regularize_bias
    assert config.CHECKPOINT.CHECKPOINT_FREQUENCY == 1
    assert config.MACHINE.DEVICE == ("cpu" if scale == "quick" else "gpu")
    assert config.DISTRIBUTED.NUM_PROC_PER_NODE == 1


@pytest.mark.parametrize("method", TRAINED)
def test_method__keeps_the_checkpoints_that_are_measured_on_the_way(method):
    config = composed(method)
    pruned = is_ours(config) and config.CHECKPOINT.PIRL.KEEP_LAST != "all"
    assert not pruned
    assert is_ours(config) == (method != "vissl_pirl")


@pytest.mark.parametrize(
    ("method", "config", "recipe"),
    [
        ("pirl_jigsaw", "", "paper"),
        ("pirl_jigsaw", "", "quick_jigsaw"),
        ("jigsaw", "_baseline", "paper"),
    ],
)
def test_method__is_the_quick_config(method, config, recipe):
    quick = compose(f"config=pretrain/pirl/quick_jigsaw{config}")
    found = composed(method, epochs=quick.OPTIMIZER.num_epochs, seed=0, recipe=recipe)
    (ours,), (theirs,) = found.DATA.TRAIN.TRANSFORMS, quick.DATA.TRAIN.TRANSFORMS
    assert ours.keys() <= theirs.keys()  # the config writes defaults out too
    assert {key: theirs[key] for key in ours} == ours
    if quick.LOSS.name == "pirl_loss":
        quick.LOSS.pirl_loss.bank.seed = 0  # the model's
    if quick.LOSS.name == "pirl_loss" and recipe == "paper":
        # Of the comparison, whose sweeps chose what the config has.
        quick.LOSS.pirl_loss |= {"lambda_invariance": 0.5, "temperature": 0.1}
        quick.LOSS.pirl_loss.bank.init = "random"
    if autocast(QUICK) == "bfloat16":
        quick.HOOKS.PIRL_INPUT.autocast = "bfloat16"
    for section in ("LOSS", "HOOKS", "MODEL"):
        assert found[section] == quick[section]
    assert found.OPTIMIZER == quick.OPTIMIZER


@pytest.mark.parametrize(
    ("method", "transform", "inputs", "heads"),
    [
        ("pirl_rotation", "PIRLRotation", ["rotated", "images"], 2),
        ("pirl_rotation_jigsaw", "PIRLRotationJigsaw", ["patches", "images"], 2),
        ("npid", "PIRLImage", ["images"], 1),
        ("npidpp", "PIRLImage", ["images"], 1),
        ("rotation", "PredictRotation", ["rotated"], 1),
    ],
)
def test_method__differs_in_views_and_heads(method, transform, inputs, heads):
    config = composed(method)
    assert config.DATA.TRAIN.TRANSFORMS[0]["name"] == transform
    assert config.DATA.TRAIN.TRANSFORMS[0]["image_size"] == 64
    assert config.DATA.TRAIN.INPUT_KEY_NAMES == inputs
    assert len(config.MODEL.HEAD.PARAMS) == heads
    mapping = config.MODEL.MULTI_INPUT_HEAD_MAPPING
    assert [entry[0] for entry in mapping] == (inputs if heads == 2 else [])
    assert config.HOOKS.PIRL_INPUT.autocast == (None if autocast(QUICK) == "null" else "bfloat16")


@pytest.mark.parametrize(
    ("flags", "expected"), [("avx2 avx512f", "null"), ("avx512f avx512_bf16", "bfloat16")]
)
def test_autocast__only_where_the_processor_has_it(flags, expected, tmp_path):
    processor = tmp_path / "cpuinfo"
    processor.write_text(f"flags : {flags}\n")
    assert autocast(QUICK, processor) == expected
    assert autocast(QUICK, tmp_path / "none") == "null"


@pytest.mark.parametrize(("supported", "expected"), [(False, "null"), (True, "bfloat16")])
def test_autocast__only_where_the_gpu_has_it(supported, expected, monkeypatch):
    """Before compute capability 8 it is emulated."""
    monkeypatch.setattr(
        torch.cuda,
        "is_bf16_supported",
        lambda including_emulation=True: including_emulation or supported,
    )
    assert autocast(SCALES["gpu"]) == expected


@pytest.mark.parametrize(("scale", "hidden"), [("quick", 256), ("gpu", 512)])
def test_mlp_blur__is_pirl_with_the_overlays_of_the_follow_up(scale, hidden):
    config, pirl = composed("pirl_jigsaw_mlp_blur", scale), composed("pirl_jigsaw", scale)
    heads = [entry[1]["hidden_dim"] for entry in config.MODEL.HEAD.PARAMS]
    assert heads == [hidden, hidden]
    (ours,), (plain,) = config.DATA.TRAIN.TRANSFORMS, pirl.DATA.TRAIN.TRANSFORMS
    assert (ours["photometric"]["blur_p"], ours["photometric"]["hue"]) == (0.5, 0.2)
    assert {**ours, "photometric": plain["photometric"]} == plain
    assert (config.LOSS.pirl_loss.bank.pop("init"), pirl.LOSS.pirl_loss.bank.pop("init")) == (
        "embeddings",
        "random",
    )
    assert config.LOSS == pirl.LOSS
    assert "pirl_jigsaw_mlp_blur" not in DEFAULT_METHODS


def test_npid__leaves_out_the_transformed_image():
    assert composed("npid").LOSS.pirl_loss.lambda_invariance == 0
    assert composed("npid").LOSS.pirl_loss.num_negatives == 1024
    assert composed("npidpp").LOSS.pirl_loss.num_negatives == 4096
    assert composed("pirl_jigsaw").LOSS.pirl_loss.lambda_invariance == 0.5


def test_vissl_pirl__keeps_its_own_data_path_and_loss():
    config = composed("vissl_pirl")
    assert config.LOSS.name == "nce_loss_with_memory"
    assert config.DATA.TRAIN.DATA_SOURCES == ["disk_folder"]
    first = config.DATA.TRAIN.TRANSFORMS[0]
    # Its patches are a third of the crop less 21 px of jitter: 135 / 3 − 21 = 24.
    assert (first["name"], first["crop_size_patches"]) == ("ImgPilToPatchesAndImage", 135)


def test_vissl_pirl__has_the_settings_of_our_loss():
    theirs, ours = composed("vissl_pirl"), composed("pirl_jigsaw").LOSS.pirl_loss
    loss = theirs.LOSS.nce_loss_with_memory
    assert (loss.loss_type, ours.estimator) == ("cross_entropy", "info_nce")  # names of one loss
    assert loss.temperature == ours.temperature
    assert loss.negative_sampling_params.num_negatives == ours.num_negatives
    assert loss.loss_weights == [ours.lambda_invariance, 1 - ours.lambda_invariance]
    assert loss.memory_params.momentum == ours.bank.momentum
    assert loss.memory_params.embedding_dim == ours.embedding_dim


def test_supervised__trains_the_trunk_with_labels():
    config = composed("supervised")
    settings = config.MODEL.FEATURE_EVAL_SETTINGS
    assert not settings.EVAL_MODE_ON
    assert not settings.FREEZE_TRUNK_ONLY
    assert config.MODEL.HEAD.PARAMS == [["mlp", {"dims": [256, 20]}]]
    assert config.DATA.TRAIN.LABEL_TYPE == "standard"


def test_sweep__changes_one_key():
    config = composed("pirl_jigsaw", extra=("config.LOSS.pirl_loss.lambda_invariance=0.25",))
    assert config.LOSS.pirl_loss.lambda_invariance == 0.25


@pytest.mark.parametrize(("scale", "name"), [("quick", "resnet10"), ("gpu", "resnet18")])
def test_linear__measures_the_papers_layers(scale, name):
    size = SCALES[scale]
    config = compose(
        "config=benchmark/pirl/quick_linear", f"+config/pirl/linear={name}", *size.linear
    )
    layers = [
        entry[0] for entry in config.MODEL.FEATURE_EVAL_SETTINGS.LINEAR_EVAL_FEAT_POOL_OPS_MAP
    ]
    assert layers[:5] == ["conv1", "res2", "res3", "res4", "res5"]
    assert dict(config.MODEL.TRUNK.PIRL_RESNET) == {**size.trunk, "SMALL_STEM": False}
    assert len(config.MODEL.HEAD.PARAMS) == len(layers)
    assert config.DATA.TRAIN.TRANSFORMS[0]["size"] == size.image_size
    # 8/7 of the crop, as the kNN's images
    assert config.DATA.TEST.TRANSFORMS[0]["size"] == round(size.image_size * 8 / 7)
    assert config.DATA.TEST.TRANSFORMS[1]["size"] == size.image_size
