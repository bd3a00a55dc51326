"""The benchmarks' composed values match the paper (App. C, Sec. 3.2 and 3.3)."""

import pytest
import torch
from classy_vision.optim.param_scheduler import build_param_scheduler
from vissl.models.heads import MODEL_HEADS_REGISTRY
from vissl.models.trunks import MODEL_TRUNKS_REGISTRY
from vissl.models.trunks.feature_extractor import POOL_OPS

from pirl_plugin.checkpoints.write import save_trunk
from pirl_plugin.models.resnet import WideResNet
from tests.helpers.configs import check_compositions, compose

LINEAR = {"linear_imagenet1k": (28, 1000), "linear_places205": (14, 205)}
LINEAR |= {"linear_inaturalist18": (84, 8142), "ensemble_imagenet1k": (56, 1000)}


def rates(config, epochs):
    """Learning rate per epoch, as VISSL's optimizer requests it."""
    schedule = build_param_scheduler(
        {**config.OPTIMIZER.param_schedulers.lr, "num_epochs": config.OPTIMIZER.num_epochs}
    )
    return [schedule(epoch / epochs) for epoch in range(epochs)]


def test_configs_and_overlays__compose():
    check_compositions("benchmark")


def test_linear__matches_the_paper(subtests):
    for name, (epochs, classes) in LINEAR.items():
        with subtests.test(name=name):
            config = compose(f"config=benchmark/pirl/{name}")
            optimizer = config.OPTIMIZER
            found = (optimizer.name, optimizer.momentum, optimizer.weight_decay)
            assert found == ("sgd", 0.9, 5e-4)
            assert optimizer.num_epochs == epochs
            machine = config.DISTRIBUTED
            ranks = machine.NUM_NODES * machine.NUM_PROC_PER_NODE
            assert ranks * config.DATA.TRAIN.BATCHSIZE_PER_REPLICA == 256
            # 0.01, divided by 10 after one and two thirds
            expected = [10.0 ** -(2 + 3 * epoch // epochs) for epoch in range(epochs)]
            assert rates(config, epochs) == pytest.approx(expected)
            assert [head[1]["dims"][1] for head in config.MODEL.HEAD.PARAMS] == [classes] * 5
            crop = [(t["name"], t.get("size")) for t in config.DATA.TEST.TRANSFORMS[:2]]
            assert crop == [("Resize", 256), ("CenterCrop", 224)]
            layers = ["conv1", "res2", "res3", "res4", "res5"]
            assert config.METERS.accuracy_list_meter.meter_names == layers


def test_timm_linear__converts_no_batch_norm():
    # On a GPU only, VISSL would also convert the trunk, which TimmTrunk refuses.
    config = compose("config=benchmark/pirl/linear_imagenet1k", "+config/pirl/linear=timm")
    assert not config.MODEL.SYNC_BN_CONFIG.CONVERT_BN_TO_SYNC_BN


@pytest.mark.parametrize(
    ("overlay", "members"),
    [
        ("resnet18", 1),
        ("resnet50", 1),
        ("resnet50_c2x", 1),
        ("resnet50_c4x", 1),
        ("resnet18_ensemble", 2),
        ("resnet50_ensemble", 2),
    ],
)
def test_linear__pools_every_layer_to_about_9000_dimensions(overlay, members):
    config = compose("config=benchmark/pirl/linear_imagenet1k", f"+config/pirl/linear={overlay}")
    model = config.MODEL
    if members > 1:
        model.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES = [""] * members
    pools = model.FEATURE_EVAL_SETTINGS.LINEAR_EVAL_FEAT_POOL_OPS_MAP
    with torch.device("meta"):  # shapes without values
        trunk = MODEL_TRUNKS_REGISTRY[model.TRUNK.NAME](model, model.TRUNK.NAME).eval()
        heads = [MODEL_HEADS_REGISTRY[head](model, **given) for head, given in model.HEAD.PARAMS]
    for size in (32, 96, 224, 384):
        features = trunk(torch.zeros(1, 3, size, size, device="meta"), [name for name, _ in pools])
        for feature, (_, (pool, args)), (_, options), head in zip(
            features, pools, model.HEAD.PARAMS, heads, strict=True
        ):
            pooled = POOL_OPS[pool](*args)(feature)
            assert pooled.shape[1] == options["in_channels"]
            assert pooled[0].numel() == options["dims"][0]
            assert 8000 <= options["dims"][0] / members <= 9300
            assert head.eval()(pooled).shape == (1, 1000)


def test_linear_schedule__follows_number_of_epochs(subtests):
    for epochs in (1, 5):
        with subtests.test(epochs=epochs):
            config = compose(
                "config=benchmark/pirl/linear_imagenet1k", f"config.OPTIMIZER.num_epochs={epochs}"
            )
            assert rates(config, epochs) == pytest.approx(
                [10.0 ** -(2 + 3 * epoch // epochs) for epoch in range(epochs)]
            )


def test_linear_rate__follows_batch_size(subtests):
    for machine, rate in (("1gpu", 0.005), ("cpu", 0.00125)):
        with subtests.test(machine=machine):
            config = compose(
                "config=benchmark/pirl/linear_places205", f"+config/pirl/machines={machine}"
            )
            values = config.OPTIMIZER.param_schedulers.lr["values"]
            assert values == pytest.approx([rate, rate / 10, rate / 100])


def test_semi_supervised__matches_the_papers_protocol(subtests):
    for percent in ("1percent", "10percent"):
        with subtests.test(percent=percent):
            config = compose(f"config=benchmark/pirl/semi_supervised_imagenet1k_{percent}")
            assert config.OPTIMIZER.num_epochs == 70
            assert rates(config, 70) == pytest.approx([0.01] * 30 + [0.001] * 30 + [0.0001] * 10)
            assert not config.MODEL.FEATURE_EVAL_SETTINGS.EVAL_MODE_ON
            assert config.MODEL.HEAD.PARAMS == [["mlp", {"dims": [2048, 1000]}]]
            assert config.METERS.accuracy_list_meter.topk_values == [1, 5]
            few = compose(
                f"config=benchmark/pirl/semi_supervised_imagenet1k_{percent}",
                "config.MODEL.HEAD.NUM_CLASSES=4",
            )
            assert few.METERS.accuracy_list_meter.topk_values == [1]
            vissls = compose(
                f"config=benchmark/pirl/semi_supervised_imagenet1k_{percent}",
                "+config/pirl/semi_supervised=vissl",
            )
            assert rates(vissls, 70) == pytest.approx([0.01] * 30 + [0.001] * 40)


def test_svm__matches_goyal_et_al():
    config = compose("config=benchmark/pirl/svm_voc07")
    assert config.SVM.cross_val_folds == 3
    assert config.SVM.costs.costs_list == [0.01, 0.1, 1.0, 2, 5, 10, 15, 20, 50, 100, 1000]
    assert (config.SVM.loss, config.SVM.penalty, config.SVM.normalize) == (
        "squared_hinge",
        "l2",
        True,
    )


def test_classes__are_set_by_one_override():
    config = compose("config=benchmark/pirl/linear_imagenet1k", "config.MODEL.HEAD.NUM_CLASSES=7")
    assert [head[1]["dims"][1] for head in config.MODEL.HEAD.PARAMS] == [7] * 5


@pytest.mark.parametrize("name", ["linear_imagenet1k", "quick_linear", "svm_voc07", "finetune"])
def test_images__use_size_and_statistics_of_the_weights(name, tmp_path):
    """With other statistics, features had a mean cosine similarity of 0.54 to the correct ones."""
    trunk = WideResNet(10, 0.25)
    statistics = {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]}
    trunk.network_config = trunk.network_config.with_values("test", size=96, **statistics)
    save_trunk(trunk, tmp_path / "10.torch")
    weights = f"config.MODEL.WEIGHTS_INIT.PARAMS_FILE={tmp_path / '10.torch'}"
    transforms = compose(f"config=benchmark/pirl/{name}", weights).DATA.TEST.TRANSFORMS
    if name == "svm_voc07":
        assert transforms[0]["size"] == [96, 96]
    else:
        assert [t["size"] for t in transforms[:2]] == [110, 96]  # 8/7 · 96, and the crop
    assert {key: transforms[-1][key] for key in statistics} == statistics
    default = compose(f"config=benchmark/pirl/{name}").DATA.TEST.TRANSFORMS
    assert default[-1]["mean"] == [0.485, 0.456, 0.406]
    if name == "finetune":
        chosen = compose(f"config=benchmark/pirl/{name}", weights, "config.DATA.MEAN=[0,0,0]")
        assert chosen.DATA.TEST.TRANSFORMS[-1]["mean"] == [0, 0, 0]


def test_ensemble_images__have_one_size(tmp_path):
    files = []
    for size in (64, 96):
        trunk = WideResNet(18, 0.25)
        trunk.network_config = trunk.network_config.with_values("test", size=size)
        files.append(str(tmp_path / f"{size}.torch"))
        save_trunk(trunk, files[-1])
    config = ["config=benchmark/pirl/ensemble_imagenet1k", "+config/pirl/linear=resnet18_ensemble"]
    members = "config.MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES"
    with pytest.raises(SystemExit, match=r"^pirl_plugin: config.* different size, \[64, 96\]"):
        compose(*config, f"{members}=[{','.join(files)}]")
    assert compose(*config, f"{members}=[{files[0]}]").DATA.TRAIN.CROP_SIZE == 64
