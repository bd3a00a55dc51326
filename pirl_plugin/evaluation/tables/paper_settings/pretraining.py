"""What is fixed for the pre-training of each row: Sec. 3, Sec. 4, App. A."""

from __future__ import annotations

from typing import Any

from pirl_plugin.evaluation.tables.paper_settings.common import (
    COMMON,
    CROSS_ENTROPY,
    IMAGENET,
    YFCC,
)

_PRETRAINING: dict[str, object] = COMMON | {
    "data set": IMAGENET,
    "global batch": 1024,
    "TEST_MODEL": False,
    "DATA.TRAIN.LABEL_TYPE": "sample_index",
    "DATA.TRAIN.COLLATE_FUNCTION": "pirl_collator",
    "MODEL.FEATURE_EVAL_SETTINGS": {
        "EVAL_MODE_ON": False,
        "FREEZE_TRUNK_ONLY": False,
        "EXTRACT_TRUNK_FEATURES_ONLY": False,
        "SHOULD_FLATTEN_FEATS": True,
        "LINEAR_EVAL_FEAT_POOL_OPS_MAP": [],
    },
    "MODEL.SYNC_BN_CONFIG.CONVERT_BN_TO_SYNC_BN": False,
    "MODEL.WEIGHTS_INIT.PARAMS_FILE": "",  # from random weights
    "MODEL.WEIGHTS_INIT.SKIP_LAYERS": ["num_batches_tracked"],
    "OPTIMIZER.weight_decay": 1e-4,
    "OPTIMIZER.nesterov": False,
    "OPTIMIZER.regularize_bias": False,
    "OPTIMIZER.num_epochs": 800,
    "OPTIMIZER.param_schedulers.lr.name": "cosine",
    "OPTIMIZER.param_schedulers.lr.start_value": 0.12,
    "OPTIMIZER.param_schedulers.lr.end_value": 0.00012,
}
_JIGSAW_VIEW = {"patches_crop_size": 255, "patches_scale": [0.6, 1.0], "grid": 3, "patch_size": 64}
_IMAGE_VIEW = {"image_size": 224, "image_scale": [0.08, 1.0]}
_PATCHES: dict[str, object] = {"num_permutations": None, "flip": "patch", "photometric": {}}


def _view(name: str, *parts: dict[str, object]) -> dict[str, object]:
    entry: dict[str, object] = {"name": name, "photometric": {}}
    for part in parts:
        entry |= part
    return {"DATA.TRAIN.TRANSFORMS": [entry]}


def _heads(width: int, transformed: str | None, patches: int) -> dict[str, object]:
    """The heads g and f, in the loss's order; f alone without a transformed version."""
    linear = {"in_dim": width, "out_dim": 128, "hidden_dim": None}
    f, g = (["pirl_head", linear | {"num_patches": count}] for count in (1, patches))
    if transformed is None:
        return {
            "DATA.TRAIN.INPUT_KEY_NAMES": ["images"],
            "MODEL.MULTI_INPUT_HEAD_MAPPING": [],
            "MODEL.HEAD.PARAMS": [f],
        }
    return {
        "DATA.TRAIN.INPUT_KEY_NAMES": [transformed, "images"],
        "MODEL.MULTI_INPUT_HEAD_MAPPING": [[transformed, ["flatten"]], ["images", ["flatten"]]],
        "MODEL.HEAD.PARAMS": [g, f],
    }


_CONTRASTIVE: dict[str, object] = _PRETRAINING | {
    "LOSS.name": "pirl_loss",
    "LOSS.pirl_loss": {
        "estimator": "nce",
        "lambda_invariance": 0.5,
        "temperature": 0.07,
        "num_negatives": 32000,
        "negatives": "per_image",
        "replacement": True,
        "norm_constant": None,
        "norm_constant_momentum": 1.0,
        "term_weights": None,
        "embedding_dim": 128,
        "bank": {"momentum": 0.5, "dtype": "float32", "init": "random"},
    },
}
_PIRL = (
    _CONTRASTIVE
    | _view("PIRLJigsaw", _IMAGE_VIEW, _JIGSAW_VIEW, _PATCHES)
    | _heads(2048, "patches", 9)
)
_NPID = (
    _CONTRASTIVE
    | _view("PIRLImage", _IMAGE_VIEW)
    | _heads(2048, None, 1)
    | {"LOSS.pirl_loss.lambda_invariance": 0}
)
_ANALYSIS = {"OPTIMIZER.num_epochs": 400, "LOSS.pirl_loss.num_negatives": 4096}  # Sec. 4
_JIGSAW = (
    _PRETRAINING
    | CROSS_ENTROPY
    | _view("PredictJigsaw", _JIGSAW_VIEW, {"num_permutations": 2000, "flip": "image"})
    | {
        "OPTIMIZER.num_epochs": 400,
        "DATA.TRAIN.INPUT_KEY_NAMES": ["patches"],
        "MODEL.MULTI_INPUT_HEAD_MAPPING": [],
        "MODEL.HEAD.PARAMS": [
            [
                "mlp",
                {
                    "dims": [2048, 1000],
                    "use_bn": True,
                    "use_relu": True,
                    "skip_last_layer_relu_bn": False,
                },
            ],
            ["siamese_concat_view", {"num_towers": 9}],
            ["mlp", {"dims": [9000, 2000]}],
        ],
    }
)
_ROTATION = (
    _PRETRAINING
    | CROSS_ENTROPY
    | _view("PredictRotation", _IMAGE_VIEW)
    | {
        "OPTIMIZER.num_epochs": 400,
        "DATA.TRAIN.INPUT_KEY_NAMES": ["rotated"],
        "MODEL.MULTI_INPUT_HEAD_MAPPING": [],
        "MODEL.HEAD.PARAMS": [["mlp", {"dims": [2048, 4]}]],
    }
)

PRETRAINING: dict[str, dict[str, Any]] = {  # row → what is fixed
    "PIRL": _PIRL,
    "PIRL-c2x": _PIRL | _heads(4096, "patches", 9) | {"MODEL.TRUNK.RESNETS.WIDTH_MULTIPLIER": 2},
    "PIRL (YFCC-1M)": _PIRL | {"data set": YFCC},
    "PIRL (Jigsaw)": _PIRL | _ANALYSIS,
    "PIRL (Rotation)": _CONTRASTIVE
    | _ANALYSIS
    | _view("PIRLRotation", _IMAGE_VIEW)
    | _heads(2048, "rotated", 1),
    "PIRL (Rotation + Jigsaw)": _PIRL
    | _ANALYSIS
    | _view("PIRLRotationJigsaw", _IMAGE_VIEW, _JIGSAW_VIEW, _PATCHES),
    "NPID++": _NPID,
    "NPID": _NPID | _ANALYSIS,
    "Jigsaw": _JIGSAW,
    "Jigsaw (YFCC-1M)": _JIGSAW | {"data set": YFCC},
    "Rotation": _ROTATION,
}
