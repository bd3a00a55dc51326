"""The pre-training configs hold the paper's values, and every overlay fits every one of them."""

import pytest
import torch
from classy_vision.dataset.transforms import build_transform
from vissl.models import build_model

from tests.helpers.configs import compose as compose_config

# Sec. 3 and Sec. 4 of the paper, by hand. Batch 8 · 4 · 32 = 1,024, learning rate 0.12 → 0.00012.
# name: (λ, N, epochs, inputs of the model)
CONTRASTIVE = {
    "jigsaw_8node": (0.5, 32000, 800, ["patches", "images"]),
    "rotation_8node": (0.5, 4096, 400, ["rotated", "images"]),
    "rotation_jigsaw_8node": (0.5, 4096, 400, ["patches", "images"]),
    "npid_8node": (0, 4096, 400, ["images"]),
    "npidpp_8node": (0, 32000, 800, ["images"]),
}
COVARIANT = {"jigsaw_baseline_8node": ["patches"], "rotation_baseline_8node": ["rotated"]}
ALL = [*CONTRASTIVE, *COVARIANT]
MODELS = {  # name: (width of its features, hidden width of f and g)
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


@pytest.mark.parametrize("name", ALL)
def test_config__has_the_papers_machines_and_optimiser(name):
    config = compose(name)
    assert (config.DISTRIBUTED.NUM_NODES, config.DISTRIBUTED.NUM_PROC_PER_NODE) == (8, 4)
    assert batch(config) == 1024
    optimizer = config.OPTIMIZER
    assert (optimizer.name, optimizer.momentum, optimizer.weight_decay) == ("sgd", 0.9, 1e-4)
    assert optimizer.nesterov is False
    schedule = optimizer.param_schedulers.lr
    assert schedule.name == "cosine"
    assert schedule.start_value == pytest.approx(0.12)
    assert schedule.end_value == pytest.approx(0.00012)
    assert (config.MODEL.TRUNK.NAME, config.MODEL.TRUNK.RESNETS.DEPTH) == ("resnet", 50)
    assert config.DATA.TRAIN.DATASET_NAMES == ["imagenet1k_folder"]


@pytest.mark.parametrize("name", CONTRASTIVE)
def test_contrastive__has_the_papers_loss(name):
    weight, negatives, epochs, inputs = CONTRASTIVE[name]
    config = compose(name)
    loss = config.LOSS.pirl_loss
    assert config.LOSS.name == "pirl_loss"
    assert (loss.lambda_invariance, loss.num_negatives) == (weight, negatives)
    assert config.OPTIMIZER.num_epochs == epochs
    assert config.DATA.TRAIN.INPUT_KEY_NAMES == inputs
    assert (loss.temperature, loss.embedding_dim, loss.bank.momentum) == (0.07, 128, 0.5)
    assert (loss.estimator, loss.negatives, loss.replacement) == ("nce", "per_image", True)


@pytest.mark.parametrize("name", COVARIANT)
def test_covariant__classifies_the_transformation(name):
    config = compose(name)
    assert config.LOSS.name == "cross_entropy_multiple_output_single_target"
    assert config.LOSS[config.LOSS.name].ignore_index == -1
    assert config.OPTIMIZER.num_epochs == 400
    assert config.DATA.TRAIN.INPUT_KEY_NAMES == COVARIANT[name]


@pytest.mark.parametrize("name", ["jigsaw_8node", "rotation_jigsaw_8node", "jigsaw_baseline_8node"])
def test_jigsaws__cut_the_papers_patches(name):
    (jigsaw,) = compose(name).DATA.TRAIN.TRANSFORMS
    assert (jigsaw["patches_crop_size"], jigsaw["grid"], jigsaw["patch_size"]) == (255, 3, 64)
    assert jigsaw["patches_scale"] == [0.6, 1.0]
    assert jigsaw["num_permutations"] == (2000 if name == "jigsaw_baseline_8node" else None)
    assert name == "jigsaw_baseline_8node" or jigsaw["image_size"] == 224


@pytest.mark.parametrize(
    ("machine", "images", "rate"),
    # rate = 0.03 · images / 256
    [
        ("8node", 1024, 0.12),
        ("4node_8gpu", 1024, 0.12),
        ("1node_8gpu", 256, 0.03),
        ("1gpu", 128, 0.015),
        ("cpu", 32, 0.00375),
    ],
)
def test_machines__let_the_learning_rate_follow_the_batch(machine, images, rate):
    config = compose("jigsaw_8node", f"+config/pirl/machines={machine}")
    assert batch(config) == images
    schedule = config.OPTIMIZER.param_schedulers.lr
    assert schedule.start_value == pytest.approx(rate)
    assert schedule.end_value == pytest.approx(rate / 1000)
    assert config.MACHINE.DEVICE == ("cpu" if machine == "cpu" else "gpu")


@pytest.mark.parametrize(("images", "rate"), [(32, 0.03), (64, 0.06)])
def test_own_images__have_a_learning_rate_for_few_steps(images, rate):
    config = compose("own_images", f"config.DATA.TRAIN.BATCHSIZE_PER_REPLICA={images}")
    schedule = config.OPTIMIZER.param_schedulers.lr
    assert schedule.start_value == pytest.approx(rate)
    assert schedule.end_value == pytest.approx(rate / 1000)


def test_machines__with_gpus_undo_what_a_quick_config_sets_for_a_cpu():
    config = compose("quick_jigsaw", "+config/pirl/machines=1gpu")
    assert (config.MACHINE.DEVICE, config.DISTRIBUTED.BACKEND) == ("gpu", "nccl")
    assert config.DATA.PIN_MEMORY is True


@pytest.mark.parametrize(
    ("epochs", "length", "negatives"),
    [("paper_800", 800, 32000), ("analysis_400", 400, 4096), ("epochs_200", 200, 32000)],
)
def test_epochs__set_length_and_negatives(epochs, length, negatives):
    config = compose("jigsaw_8node", f"+config/pirl/epochs={epochs}")
    assert config.OPTIMIZER.num_epochs == length
    assert config.LOSS.pirl_loss.num_negatives == negatives


@pytest.mark.parametrize(
    ("name", "model"),
    [*(("jigsaw_8node", model) for model in MODELS), ("npid_8node", "resnet50_c2x_mlp")],
)
def test_models__keep_each_tasks_heads(name, model):
    width, hidden = MODELS[model]
    config = compose(name, f"+config/pirl/models={model}")
    expected = [
        ["pirl_head", {"in_dim": width, "out_dim": 128, "hidden_dim": hidden, "num_patches": n}]
        for n in [9 if view == "patches" else 1 for view in CONTRASTIVE[name][3]]
    ]
    assert config.MODEL.HEAD.PARAMS == expected


def test_models__keep_the_classifiers():
    width, overlay = MODELS["resnet50_c2x"][0], "+config/pirl/models=resnet50_c2x"
    rotation = compose("rotation_baseline_8node", overlay)
    assert rotation.MODEL.HEAD.PARAMS == [["mlp", {"dims": [width, 4]}]]
    for number in (10, 2000):  # |T| is the size of the classifier
        more = [f"config.DATA.TRAIN.VIEWS.num_permutations={number}"]
        jigsaw = compose("jigsaw_baseline_8node", overlay, *more)
        first, join, last = jigsaw.MODEL.HEAD.PARAMS
        assert first[1]["dims"] == [width, 1000]
        assert join == ["siamese_concat_view", {"num_towers": 9}]
        assert last[1]["dims"] == [9 * 1000, number]


@pytest.mark.parametrize(
    ("model", "parameters"),
    # torchvision's ResNets without classifier; ResNet-50 of twice the width as in the paper.
    [("resnet18", 11_176_512), ("resnet50_c2x", 93_907_072)],
)
def test_models__have_the_known_number_of_parameters(model, parameters):
    config = compose("jigsaw_8node", f"+config/pirl/models={model}")
    with torch.device("meta"):
        trunk = build_model(config.MODEL, config.OPTIMIZER).trunk
    assert sum(parameter.numel() for parameter in trunk.parameters()) == parameters


@pytest.mark.parametrize("data", ["imagenet1k", "filelist"])
def test_datasets__need_one_path(data):
    overlay = f"+config/pirl/datasets={data}"
    config = compose("rotation_8node", overlay, "config.DATA.TRAIN.DATA_PATHS=[here]")
    kind = "filelist" if data == "filelist" else "folder"
    assert config.DATA.TRAIN.DATA_SOURCES == [f"pirl_disk_{kind}"]
    assert config.DATA.TRAIN.DATA_PATHS == ["here"]


@pytest.mark.parametrize("name", ALL)
def test_overlays__go_together_over_every_config(name):
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
def test_npid__sees_only_the_images(name):
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
