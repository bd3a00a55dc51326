"""What is fixed for each detection run: Sec. 3.1 and App. B, in Detectron2's keys.

A key that is not here has Detectron2's default value, and may not be set to another.
"""

from __future__ import annotations

FREE = {  # pattern of a key → why it may differ
    "SEED": "seed",
    "OUTPUT_DIR": "path",
    "MODEL.WEIGHTS": "path; the run that made the file is compared itself",
    "MODEL.DEVICE": "machine",
    "DATALOADER.NUM_WORKERS": "workers",
    "SOLVER.CHECKPOINT_PERIOD": "how a run resumes",
    "TEST.EVAL_PERIOD": "the model is tested at the end",
    "VIS_PERIOD": "log",
    "VERSION": "of the file's form",
    "_BASE_": "path; the values it gives are compared",
}
_BASE: dict[str, object] = {
    "MODEL": {
        "META_ARCHITECTURE": "GeneralizedRCNN",
        "MASK_ON": False,
        "PIXEL_MEAN": [123.675, 116.28, 103.53],
        "PIXEL_STD": [58.395, 57.12, 57.375],
        "BACKBONE.FREEZE_AT": 2,
        "RESNETS": {"DEPTH": 50, "NORM": "FrozenBN", "STRIDE_IN_1X1": False},
        "RPN": {"PRE_NMS_TOPK_TEST": 6000, "POST_NMS_TOPK_TEST": 1000},
        "ROI_HEADS": {"NAME": "Res5ROIHeads", "NUM_CLASSES": 20},
    },
    "INPUT": {
        "FORMAT": "RGB",
        "MIN_SIZE_TRAIN": [480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800],
        "MIN_SIZE_TEST": 800,
    },
    "DATASETS.TRAIN": ["voc_2007_trainval", "voc_2012_trainval"],
    "DATASETS.TEST": ["voc_2007_test"],
    "SOLVER": {
        "IMS_PER_BATCH": 16,
        "REFERENCE_WORLD_SIZE": 8,
        "BASE_LR": 0.003,
        "WARMUP_FACTOR": 1 / 3,
        "WARMUP_ITERS": 1000,
        "STEPS": [17000],
        "MAX_ITER": 25000,
    },
    "TEST.PRECISE_BN.ENABLED": False,
}
_VOC07 = {"DATASETS.TRAIN": ["voc_2007_trainval"], "SOLVER.STEPS": [9500], "SOLVER.MAX_ITER": 12500}
_BASELINES = {"SOLVER.BASE_LR": 0.02, "SOLVER.WARMUP_ITERS": 100}
CONFIGS: dict[str, dict[str, object]] = {  # configuration → what is fixed
    "voc0712_pirl": _BASE,
    "voc0712_supervised_jigsaw": _BASE | _BASELINES,
    "voc07_pirl": _BASE | _VOC07,
    "voc07_supervised_jigsaw": _BASE | _VOC07 | _BASELINES,
    "voc0712_moco24k": _BASE
    | {
        "MODEL.BACKBONE.FREEZE_AT": 0,
        "MODEL.RESNETS.NORM": "SyncBN",
        "MODEL.ROI_HEADS.NAME": "Res5ROIHeadsExtraNorm",
        "SOLVER.BASE_LR": 0.02,
        "SOLVER.WARMUP_FACTOR": 0.001,
        "SOLVER.WARMUP_ITERS": 100,
        "SOLVER.STEPS": [18000, 22000],
        "SOLVER.MAX_ITER": 24000,
        "TEST.PRECISE_BN.ENABLED": True,
    },
}
DEFAULTS = {  # Detectron2's own values of keys that a file of ours need not set
    "MODEL.BACKBONE.FREEZE_AT": 2,
    "SOLVER.WARMUP_FACTOR": 0.001,
    "TEST.PRECISE_BN.ENABLED": False,
}
ROWS = {  # configuration → table, and the rows whose schedule it is
    "voc07_pirl": (6, ("PIRL",)),
    "voc0712_pirl": (1, ("PIRL", "NPID++")),
    "voc07_supervised_jigsaw": (6, ("Supervised", "Jigsaw")),
    "voc0712_supervised_jigsaw": (1, ("Supervised", "Jigsaw")),
    "voc0712_moco24k": (1, ("MoCo (BatchNorm fine-tuned)",)),
}
