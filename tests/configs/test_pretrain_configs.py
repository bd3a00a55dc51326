"""The pre-training configs match the paper, and every overlay fits each of them."""

import functools
from operator import getitem

import pytest
from classy_vision.dataset.transforms import build_transform

from tests.helpers.configs import check_compositions
from tests.helpers.configs import compose as compose_config

# Copied from Sec. 3 and 4 in the paper. Batch 8 · 4 · 32 = 1,024, learning rate 0.12 → 0.00012.
# name: (λ, N, epochs, model inputs)
CONTRASTIVE = {
    "jigsaw_8node": (0.5, 32000, 800, ["patches", "images"]),
    "rotation_8node": (0.5, 4096, 400, ["transformed", "images"]),
    "rotation_jigsaw_8node": (0.5, 4096, 400, ["patches", "images"]),
    "npid_8node": (0, 4096, 400, ["images"]),
    "npidpp_8node": (0, 32000, 800, ["images"]),
}
COVARIANT = {"jigsaw_baseline_8node": ["patches"], "rotation_baseline_8node": ["transformed"]}
ALL = [*CONTRASTIVE, *COVARIANT]
MODELS = {  # name: (feature width, hidden width of f and g)
    "resnet10": (256, None),
    "resnet18": (512, None),
    "resnet50": (2048, None),
    "resnet50_mlp": (2048, 2048),
    "resnet50_c2x": (4096, None),
    "resnet50_c2x_mlp": (4096, 4096),
    "resnet50_c4x": (8192, None),
}


def compose(name, *overrides):
    return compose_config(f"config=pretrain/pirl/{name}", *overrides)


def batch(config):
    ranks = config.DISTRIBUTED.NUM_NODES * config.DISTRIBUTED.NUM_PROC_PER_NODE
    return ranks * config.DATA.TRAIN.BATCHSIZE_PER_REPLICA


def values_of(config, keys):
    """Map dotted keys to values; comparing two such dictionaries names the differing key."""
    return {key: functools.reduce(getitem, key.split("."), config) for key in keys}


def test_configs_and_overlays__compose():
    """This is here because the other tests in this module compose most of them too."""
    check_compositions("pretrain")


def test_configs__match_the_papers_machines_and_optimizer():
    paper = {
        "DISTRIBUTED.NUM_NODES": 8,
        "DISTRIBUTED.NUM_PROC_PER_NODE": 4,
        "DATA.TRAIN.BATCHSIZE_PER_REPLICA": 32,
        "DATA.TRAIN.DATASET_NAMES": ["imagenet1k_folder"],
        "OPTIMIZER.name": "sgd",
        "OPTIMIZER.momentum": 0.9,
        "OPTIMIZER.weight_decay": 1e-4,
        "OPTIMIZER.nesterov": False,
        "OPTIMIZER.param_schedulers.lr.name": "cosine",
        "OPTIMIZER.param_schedulers.lr.start_value": pytest.approx(0.12),
        "OPTIMIZER.param_schedulers.lr.end_value": pytest.approx(0.00012),
        "MODEL.TRUNK.NAME": "resnet",
        "MODEL.TRUNK.RESNETS.DEPTH": 50,
    }
    for name in ALL:
        assert {"config": name, **values_of(compose(name), paper)} == {"config": name, **paper}


def test_contrastive_configs__match_the_papers_loss():
    for name, (weight, negatives, epochs, inputs) in CONTRASTIVE.items():
        paper = {
            "LOSS.name": "pirl_loss",
            "LOSS.pirl_loss.lambda_invariance": weight,
            "LOSS.pirl_loss.num_negatives": negatives,
            "LOSS.pirl_loss.temperature": 0.07,
            "LOSS.pirl_loss.embedding_dim": 128,
            "LOSS.pirl_loss.bank.momentum": 0.5,
            "LOSS.pirl_loss.estimator": "nce",
            "LOSS.pirl_loss.negatives": "per_image",
            "LOSS.pirl_loss.replacement": True,
            "OPTIMIZER.num_epochs": epochs,
            "DATA.TRAIN.INPUT_KEY_NAMES": inputs,
        }
        assert {"config": name, **values_of(compose(name), paper)} == {"config": name, **paper}


def test_covariant_configs__classify_the_transformation():
    loss = "cross_entropy_multiple_output_single_target"
    for name, inputs in COVARIANT.items():
        expected = {
            "LOSS.name": loss,
            f"LOSS.{loss}.ignore_index": -1,
            "OPTIMIZER.num_epochs": 400,
            "DATA.TRAIN.INPUT_KEY_NAMES": inputs,
        }
        found = values_of(compose(name), expected)
        assert {"config": name, **found} == {"config": name, **expected}


def test_jigsaws__use_the_papers_patches():
    paper = {"patches_crop_size": 255, "grid": 3, "patch_size": 64, "patches_scale": [0.6, 1.0]}
    with_image = {**paper, "num_permutations": None, "image_size": 224}
    for name, expected in {
        "jigsaw_8node": with_image,
        "rotation_jigsaw_8node": with_image,
        "jigsaw_baseline_8node": {**paper, "num_permutations": 2000},
    }.items():
        (jigsaw,) = compose(name).DATA.TRAIN.TRANSFORMS
        assert {key: jigsaw[key] for key in expected} == expected, name


def test_patches__scale_with_image_size(subtests):
    """64-px patches from 64-px images had nine times the image's pixels."""
    for name, options, expected in (
        ("jigsaw_8node", ["image_size=112"], [112, 128, 32]),  # half the paper's size
        ("own_images", ["image_size=64"], [64, 73, 18]),
        ("quick_jigsaw", ["image_size=128"], [128, 192, 48]),  # 96 and 24 for 64 px
        ("jigsaw_8node", ["image_size=64", "patch_size=16"], [64, 73, 16]),
    ):
        with subtests.test(name=name, options=options):
            (jigsaw,) = compose(
                name, *(f"config.DATA.TRAIN.VIEWS.{each}" for each in options)
            ).DATA.TRAIN.TRANSFORMS
            keys = ["image_size", "patches_crop_size", "patch_size"]
            assert [jigsaw[key] for key in keys] == expected


def test_machines__scale_learning_rate_with_batch():
    for machine, images, rate in (  # rate = 0.03 · images / 256
        ("8node", 1024, 0.12),
        ("4node_8gpu", 1024, 0.12),
        ("1node_8gpu", 256, 0.03),
        ("1gpu", 128, 0.015),
        ("cpu", 32, 0.00375),
    ):
        config = compose("jigsaw_8node", f"+config/pirl/machines={machine}")
        schedule = config.OPTIMIZER.param_schedulers.lr
        device = "cpu" if machine == "cpu" else "gpu"
        found = (batch(config), schedule.start_value, schedule.end_value, config.MACHINE.DEVICE)
        assert found == (images, pytest.approx(rate), pytest.approx(rate / 1000), device), machine


def test_own_images__adapt_learning_rate_to_few_steps(subtests):
    for images, rate in ((32, 0.03), (64, 0.06)):
        with subtests.test(images=images):
            config = compose("own_images", f"config.DATA.TRAIN.BATCHSIZE_PER_REPLICA={images}")
            schedule = config.OPTIMIZER.param_schedulers.lr
            assert schedule.start_value == pytest.approx(rate)
            assert schedule.end_value == pytest.approx(rate / 1000)


def test_gpu_machines__undo_cpu_settings_of_quick_configs():
    config = compose("quick_jigsaw", "+config/pirl/machines=1gpu")
    assert (config.MACHINE.DEVICE, config.DISTRIBUTED.BACKEND) == ("gpu", "nccl")
    assert config.DATA.PIN_MEMORY is True


def test_epochs__set_length_and_negatives():
    for epochs, length, negatives in (
        ("paper_800", 800, 32000),
        ("analysis_400", 400, 4096),
        ("epochs_200", 200, 32000),
    ):
        config = compose("jigsaw_8node", f"+config/pirl/epochs={epochs}")
        found = (config.OPTIMIZER.num_epochs, config.LOSS.pirl_loss.num_negatives)
        assert found == (length, negatives), epochs


def test_models__keep_task_heads():
    cases = [*(("jigsaw_8node", model) for model in MODELS), ("npid_8node", "resnet50_c2x_mlp")]
    for name, model in cases:
        width, hidden = MODELS[model]
        config = compose(name, f"+config/pirl/models={model}")
        expected = [
            ["pirl_head", {"in_dim": width, "out_dim": 128, "hidden_dim": hidden, "num_patches": n}]
            for n in [9 if view == "patches" else 1 for view in CONTRASTIVE[name][3]]
        ]
        assert config.MODEL.HEAD.PARAMS == expected, (name, model)


def test_models__keep_classifiers():
    width, overlay = MODELS["resnet50_c2x"][0], "+config/pirl/models=resnet50_c2x"
    rotation = compose("rotation_baseline_8node", overlay)
    assert rotation.MODEL.HEAD.PARAMS == [["mlp", {"dims": [width, 4]}]]
    for number in (10, 2000):  # |T| is the classifier's size
        more = [f"config.DATA.TRAIN.VIEWS.num_permutations={number}"]
        jigsaw = compose("jigsaw_baseline_8node", overlay, *more)
        first, join, last = jigsaw.MODEL.HEAD.PARAMS
        assert first[1]["dims"] == [width, 1000]
        assert join == ["siamese_concat_view", {"num_towers": 9}]
        assert last[1]["dims"] == [9 * 1000, number]


@pytest.mark.parametrize("name", ["jigsaw_8node", "npid_8node", "rotation_baseline_8node"])
def test_overlays__combine_with_every_kind_of_config(name):
    chosen = {
        "machines": "4node_8gpu", "models": "resnet50_c2x", "epochs": "epochs_200",
        "datasets": "yfcc1m", "transforms": "gaussian_blur",
    }  # fmt: skip
    config = compose(name, *(f"+config/pirl/{group}={option}" for group, option in chosen.items()))
    assert config.DISTRIBUTED.NUM_NODES == 4
    assert config.MODEL.TRUNK.RESNETS.WIDTH_MULTIPLIER == 2
    assert config.OPTIMIZER.num_epochs == 200
    assert config.DATA.TRAIN.DATASET_NAMES == ["yfcc1m_filelist"]
    made = build_transform(config.DATA.TRAIN.TRANSFORMS[0]).views.photometric
    assert (made.blur_p, list(made.blur_sigma)) == (0.5, [0.1, 2.0])
    assert (made.brightness, made.hue, made.jitter_p, made.photometric_p) == (0.8, 0.2, 0.8, 0)
    plain = build_transform(compose(name).DATA.TRAIN.TRANSFORMS[0]).views.photometric
    assert (plain.blur_p, plain.brightness) == (0, 0.4)


@pytest.mark.parametrize("name", ["own_images", "quick_jigsaw"])
def test_rotation__replaces_jigsaw(name):
    """Inputs and heads are as in the paper's rotation; images are as in the config."""
    config = compose(name, "+config/pirl/transforms=rotation")
    of_paper = compose("rotation_8node")
    assert config.DATA.TRAIN.TRANSFORMS[0]["name"] == "PIRLRotation"
    assert config.DATA.TRAIN.TRANSFORMS[0]["image_size"] == config.DATA.TRAIN.VIEWS.image_size
    assert config.DATA.TRAIN.INPUT_KEY_NAMES == of_paper.DATA.TRAIN.INPUT_KEY_NAMES
    mapping = "MULTI_INPUT_HEAD_MAPPING"
    assert config.MODEL[mapping] == of_paper.MODEL[mapping]
    heads = [head[1]["num_patches"] for head in config.MODEL.HEAD.PARAMS]
    assert heads == [head[1]["num_patches"] for head in of_paper.MODEL.HEAD.PARAMS] == [1, 1]


@pytest.mark.parametrize("name", ["own_images", "quick_jigsaw"])
def test_npid__uses_only_images(name):
    config = compose(name, "+config/pirl/transforms=npid")
    (transform,) = config.DATA.TRAIN.TRANSFORMS
    jigsaw = compose(name).DATA.TRAIN.TRANSFORMS[0]
    assert transform["name"] == "PIRLImage"
    for key in ("image_size", "image_scale", "photometric"):
        assert transform[key] == jigsaw[key]
    assert list(config.DATA.TRAIN.INPUT_KEY_NAMES) == ["images"]
    (head,) = config.MODEL.HEAD.PARAMS
    assert head[1]["num_patches"] == 1
    assert config.LOSS.pirl_loss.lambda_invariance == 0
