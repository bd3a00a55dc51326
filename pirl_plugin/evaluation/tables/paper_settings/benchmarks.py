"""What is fixed for each column: App. C, and Table 3 for fine-tuning on few labels."""

from __future__ import annotations

from collections.abc import Sequence

from pirl_plugin.evaluation.tables.paper_settings.common import (
    COMMON,
    CROSS_ENTROPY,
    IMAGENET,
    INATURALIST,
    PLACES,
    SPLIT,
    VOC07,
)

_MEAN_STD: dict[str, object] = {
    "name": "Normalize",
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
}
_POOLS = [
    ["conv1", ["AvgPool2d", [[10, 10], 10, 4]]],
    ["res2", ["AvgPool2d", [[16, 16], 8, 0]]],
    ["res3", ["AvgPool2d", [[13, 13], 5, 0]]],
    ["res4", ["AvgPool2d", [[8, 8], 3, 0]]],
    ["res5", ["AvgPool2d", [[6, 6], 1, 0]]],
]
_POOLS_C2X = [
    ["conv1", ["AvgPool2d", [[20, 20], 13, 4]]],
    ["res2", ["AvgPool2d", [[32, 32], 8, 0]]],
    ["res3", ["AvgPool2d", [[13, 13], 7, 0]]],
    ["res4", ["AvgPool2d", [[8, 8], 6, 0]]],
    ["res5", ["AdaptiveAvgPool2d", [[2, 1]]]],
]
_CHANNELS = (64, 256, 512, 1024, 2048)
_DIMENSIONS = (9216, 9216, 8192, 9216, 8192)
_CHANNELS_C2X = (128, 512, 1024, 2048, 4096)
_DIMENSIONS_C2X = (8192, 8192, 9216, 8192, 8192)


def _benchmark(
    data: str, crop: list[dict[str, object]], test: list[dict[str, object]]
) -> dict[str, object]:
    """What all benchmarks share, with the names of the transforms before ``ToTensor``."""
    tail = [{"name": "ToTensor"}, _MEAN_STD]
    shared = {"INPUT_KEY_NAMES": ["data"], "COLLATE_FUNCTION": "default_collate"}
    shared |= {"LABEL_TYPE": "standard"}
    return COMMON | {
        "data set": data,
        "test data set": data,
        "DATA.TRAIN": SPLIT | shared | {"TRANSFORMS": [*crop, *tail]},
        "DATA.TEST": SPLIT | shared | {"TRANSFORMS": [*test, *tail]},
        "MODEL.MULTI_INPUT_HEAD_MAPPING": [],
        "MODEL.WEIGHTS_INIT.SKIP_LAYERS": ["num_batches_tracked"],
        "OPTIMIZER.nesterov": True,
        "OPTIMIZER.regularize_bias": True,
    }


def _classifiers(
    classes: int, channels: tuple[int, ...] = _CHANNELS, dims: tuple[int, ...] = _DIMENSIONS
) -> dict[str, object]:
    heads = [
        ["eval_mlp", {"in_channels": inputs, "dims": [size, classes]}]
        for inputs, size in zip(channels, dims, strict=True)
    ]
    return {"MODEL.HEAD.NUM_CLASSES": classes, "MODEL.HEAD.PARAMS": heads}


def _frozen(pools: Sequence[object], extract: bool) -> dict[str, object]:
    return {
        "MODEL.FEATURE_EVAL_SETTINGS": {
            "EVAL_MODE_ON": True,
            "FREEZE_TRUNK_ONLY": True,
            "EXTRACT_TRUNK_FEATURES_ONLY": extract,
            "SHOULD_FLATTEN_FEATS": extract,
            "LINEAR_EVAL_FEAT_POOL_OPS_MAP": pools,
        },
    }


def _linear(data: str, classes: int, epochs: int) -> dict[str, object]:
    crop: list[dict[str, object]] = [
        {"name": "RandomResizedCrop", "size": 224, "scale": [0.08, 1.0]},
        {"name": "RandomHorizontalFlip"},
    ]
    test: list[dict[str, object]] = [
        {"name": "Resize", "size": 256},
        {"name": "CenterCrop", "size": 224},
    ]
    return (
        _benchmark(data, crop, test)
        | CROSS_ENTROPY
        | _frozen(_POOLS, extract=False)
        | _classifiers(classes)
        | {
            "global batch": 256,
            "TEST_MODEL": True,
            "MODEL.SYNC_BN_CONFIG.CONVERT_BN_TO_SYNC_BN": True,
            "OPTIMIZER.weight_decay": 5e-4,
            "OPTIMIZER.num_epochs": epochs,
            "OPTIMIZER.param_schedulers.lr.name": "step",
            "OPTIMIZER.param_schedulers.lr.values": [0.01, 0.001, 0.0001],
        }
    )


_SEMI = _linear(IMAGENET, 1000, 70) | {
    "DATA.TRAIN.DROP_LAST": True,
    "MODEL.FEATURE_EVAL_SETTINGS": {
        "EVAL_MODE_ON": False,
        "FREEZE_TRUNK_ONLY": False,
        "EXTRACT_TRUNK_FEATURES_ONLY": False,
        "SHOULD_FLATTEN_FEATS": True,
        "LINEAR_EVAL_FEAT_POOL_OPS_MAP": [],
    },
    "MODEL.HEAD.PARAMS": [["mlp", {"dims": [2048, 1000]}]],
    "MODEL.SYNC_BN_CONFIG.CONVERT_BN_TO_SYNC_BN": False,
    "MODEL.WEIGHTS_INIT.SKIP_LAYERS": ["num_batches_tracked", "heads."],
    "OPTIMIZER.weight_decay": 0.0,
    "OPTIMIZER.param_schedulers.lr.name": "multistep",
    "OPTIMIZER.param_schedulers.lr.values": [0.01, 0.001, 0.0001],
    "OPTIMIZER.param_schedulers.lr.milestones": [30, 60],
}
_WARPED: list[dict[str, object]] = [{"name": "Resize", "size": [224, 224]}]
BENCHMARKS: dict[str, dict[str, object]] = {  # column → what is fixed
    IMAGENET: _linear(IMAGENET, 1000, 28),
    PLACES: _linear(PLACES, 205, 14),
    INATURALIST: _linear(INATURALIST, 8142, 84),
    "1 %": _SEMI | {"data set": "1 % of ImageNet"},
    "10 %": _SEMI | {"data set": "10 % of ImageNet"},
    VOC07: {
        key: value
        for key, value in _benchmark(VOC07, _WARPED, _WARPED).items()
        if not key.startswith(("OPTIMIZER", "TRAINER", "TEST_ONLY"))
    }
    | _frozen(_POOLS, extract=True)
    | {
        "MODEL.WEIGHTS_INIT.SKIP_LAYERS": ["num_batches_tracked", "heads."],
        "SVM_FEATURES_PATH": "",
        "SVM": {
            "normalize": True,
            "cls_list": [],
            "loss": "squared_hinge",
            "penalty": "l2",
            "dual": True,
            "max_iter": 2000,
            "cross_val_folds": 3,
            "force_retrain": True,
            "costs": {
                "costs_list": [0.01, 0.1, 1.0, 2, 5, 10, 15, 20, 50, 100, 1000],
                "base": -1.0,
                "power_range": [4, 20],
            },
        },
    },
}
# What takes the place of a column's values on another trunk. The paper trains the classifier of
# PIRL-ens longer, as CMC does, and does not say how long.
TRUNKS: dict[str, dict[str, dict[str, object]]] = {
    "PIRL-c2x": {
        column: {
            "MODEL.TRUNK.RESNETS.WIDTH_MULTIPLIER": 2,
            "MODEL.FEATURE_EVAL_SETTINGS.LINEAR_EVAL_FEAT_POOL_OPS_MAP": _POOLS_C2X,
        }
        | ({} if column == VOC07 else _classifiers(classes, _CHANNELS_C2X, _DIMENSIONS_C2X))
        for column, classes in ((IMAGENET, 1000), (PLACES, 205), (INATURALIST, 8142), (VOC07, 20))
    },
    "PIRL-ens": {
        IMAGENET: {
            "MODEL.TRUNK.NAME": "pirl_ensemble",
            "MODEL.TRUNK.PIRL_ENSEMBLE.MEMBER": "resnet",
            "OPTIMIZER.num_epochs": 56,
        }
        | _classifiers(1000, _CHANNELS_C2X, (18432, 18432, 16384, 18432, 16384)),
    },
}
