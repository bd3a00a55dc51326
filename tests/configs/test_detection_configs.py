"""The detection configs match the paper; they are read without Detectron2."""

import ast

import pytest
from fvcore.common.config import CfgNode
from published import DETECTION_ROWS as ROWS

from pirl_plugin.system.comparison import flat
from pirl_plugin.vissl.host_config import config_root

FILES = {path.stem: path for path in sorted((config_root() / "detection").glob("*.yaml"))}
FINE_TUNED = {  # appendix: rate, warm-up, steps, iterations
    "voc07_pirl": (0.003, 1000, (9500,), 12_500),
    "voc0712_pirl": (0.003, 1000, (17_000,), 25_000),
    "voc07_supervised_jigsaw": (0.02, 100, (9500,), 12_500),
    "voc0712_supervised_jigsaw": (0.02, 100, (17_000,), 25_000),
}


KEYS = {  # Detectron2 keys set in our files; it refuses unknown ones when a run starts
    "VERSION", "DATALOADER.NUM_WORKERS", "DATASETS.TEST", "DATASETS.TRAIN", "INPUT.FORMAT",
    "INPUT.MIN_SIZE_TEST", "INPUT.MIN_SIZE_TRAIN", "MODEL.BACKBONE.FREEZE_AT", "MODEL.DEVICE",
    "MODEL.MASK_ON", "MODEL.META_ARCHITECTURE", "MODEL.PIXEL_MEAN", "MODEL.PIXEL_STD",
    "MODEL.RESNETS.DEPTH", "MODEL.RESNETS.NORM", "MODEL.RESNETS.STRIDE_IN_1X1",
    "MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE", "MODEL.ROI_HEADS.NAME",
    "MODEL.ROI_HEADS.NUM_CLASSES", "MODEL.RPN.POST_NMS_TOPK_TEST",
    "MODEL.RPN.POST_NMS_TOPK_TRAIN", "MODEL.RPN.PRE_NMS_TOPK_TEST", "SOLVER.BASE_LR",
    "SOLVER.IMS_PER_BATCH", "SOLVER.MAX_ITER", "SOLVER.REFERENCE_WORLD_SIZE", "SOLVER.STEPS",
    "SOLVER.WARMUP_FACTOR", "SOLVER.WARMUP_ITERS", "TEST.PRECISE_BN.ENABLED",
}  # fmt: skip


def literals(node):
    """Parse tuples, which YAML stores as text and Detectron2 reads as Python."""
    if isinstance(node, dict):
        return {key: literals(value) for key, value in node.items()}
    try:
        return ast.literal_eval(node) if isinstance(node, str) else node
    except (SyntaxError, ValueError):
        return node


def load(name):
    return literals(CfgNode.load_yaml_with_base(str(FILES[name])))


def test_configs__are_the_expected_files_and_keys():
    assert set(FILES) == {
        *("base_c4", "base_voc", "coco_c4_1x", "smoke_cpu", "voc0712_moco24k"),
        *FINE_TUNED,
    }
    assert set(ROWS) <= set(FILES)
    for name in FILES:
        assert flat(CfgNode.load_yaml_with_base(str(FILES[name]))).keys() <= KEYS, name


def test_voc__matches_the_paper(subtests):
    for name in FINE_TUNED:
        with subtests.test(name=name):
            config = load(name)
            rate, warmup, steps, iterations = FINE_TUNED[name]
            solver = config["SOLVER"]
            assert (solver["BASE_LR"], solver["WARMUP_ITERS"]) == (rate, warmup)
            assert (solver["STEPS"], solver["MAX_ITER"]) == (steps, iterations)
            assert solver["WARMUP_FACTOR"] == pytest.approx(1 / 3, abs=1e-15)
            assert (solver["IMS_PER_BATCH"], solver["REFERENCE_WORLD_SIZE"]) == (16, 8)  # 8 × 2
            assert config["MODEL"]["RESNETS"]["NORM"] == "FrozenBN"
            assert config["MODEL"]["ROI_HEADS"] == {"NAME": "Res5ROIHeads", "NUM_CLASSES": 20}
            train = {"voc07": ("voc_2007_trainval",)}.get(
                name.partition("_")[0], ("voc_2007_trainval", "voc_2012_trainval")
            )
            assert config["DATASETS"] == {"TRAIN": train, "TEST": ("voc_2007_test",)}


def test_all__suit_torchvisions_weights(subtests):
    for name in FILES:
        with subtests.test(name=name):
            model, image = load(name)["MODEL"], load(name)["INPUT"]
            assert image["FORMAT"] == "RGB"
            assert model["PIXEL_MEAN"] == [123.675, 116.28, 103.53]  # 255 × 0.485, 0.456, 0.406
            assert model["PIXEL_STD"] == [58.395, 57.12, 57.375]  # 255 × 0.229, 0.224, 0.225
            assert model["RESNETS"]["STRIDE_IN_1X1"] is False
            assert model["RESNETS"]["DEPTH"] == 50


def test_moco24k__trains_batch_norm():
    config = load("voc0712_moco24k")
    assert config["MODEL"]["RESNETS"]["NORM"] == "SyncBN"
    assert config["MODEL"]["ROI_HEADS"]["NAME"] == "Res5ROIHeadsExtraNorm"
    assert config["MODEL"]["BACKBONE"]["FREEZE_AT"] == 0
    assert config["TEST"]["PRECISE_BN"]["ENABLED"] is True
    solver = config["SOLVER"]
    assert (solver["STEPS"], solver["MAX_ITER"]) == ((18_000, 22_000), 24_000)
    assert (solver["BASE_LR"], solver["WARMUP_ITERS"]) == (0.02, 100)


def test_smoke__runs_one_process_on_cpu_at_tiny_rate():
    config = load("smoke_cpu")
    assert config["MODEL"]["DEVICE"] == "cpu"
    assert config["SOLVER"]["REFERENCE_WORLD_SIZE"] == 0
    assert config["SOLVER"]["BASE_LR"] <= 1e-5
    assert config["SOLVER"]["MAX_ITER"] <= 10
