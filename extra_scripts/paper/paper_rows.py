"""How the paper's rows and columns are made: our configs, and image counts."""

from __future__ import annotations

from pirl_plugin.vissl.resume.record import FREE

_JIGSAW = "config=pretrain/pirl/jigsaw_8node"
_BASELINE = "config=pretrain/pirl/jigsaw_baseline_8node"
PRETRAININGS: dict[str, tuple[str, ...]] = {
    "PIRL": (_JIGSAW,),
    "PIRL-c2x": (_JIGSAW, "+config/pirl/models=resnet50_c2x"),
    "PIRL (YFCC-1M)": (_JIGSAW, "+config/pirl/datasets=yfcc1m"),
    "PIRL (Jigsaw)": (_JIGSAW, "+config/pirl/epochs=analysis_400"),
    "PIRL (Rotation)": ("config=pretrain/pirl/rotation_8node",),
    "PIRL (Rotation + Jigsaw)": ("config=pretrain/pirl/rotation_jigsaw_8node",),
    "NPID++": ("config=pretrain/pirl/npidpp_8node",),
    "NPID": ("config=pretrain/pirl/npid_8node",),
    "Jigsaw": (_BASELINE,),
    "Jigsaw (YFCC-1M)": (_BASELINE, "+config/pirl/datasets=yfcc1m"),
    "Rotation": ("config=pretrain/pirl/rotation_baseline_8node",),
}
"""Row in the paper's tables → overrides for its pre-training."""

SUPERVISED = {"19c8e357": "resnet50-19c8e357.pth", "0676ba61": "resnet50-0676ba61.pth"}
"""First SHA-256 digits → name of torchvision's first ResNet-50, which was saved twice."""

MOCO_MD5 = "b251726a"
"""First MD5 digits of the published MoCo v1 (github.com/facebookresearch/moco)."""

BENCHMARKS = {
    "imagenet1k": ("ImageNet", "linear_imagenet1k"),
    "places205": ("Places205", "linear_places205"),
    "inaturalist18": ("iNaturalist-2018", "linear_inaturalist18"),
    "imagenet1k_1percent": ("1 %", "semi_supervised_imagenet1k_1percent"),
    "imagenet1k_10percent": ("10 %", "semi_supervised_imagenet1k_10percent"),
    "voc07": ("VOC07", "svm_voc07"),
}
"""Data set → column in the paper's tables, and config."""

TOP_5 = ("1 %", "10 %")
"""Columns with top-5; the others of linear classifiers have top-1."""

IMAGES = {
    "imagenet1k": {"TRAIN": 1_281_167, "TEST": 50_000},
    "imagenet1k_1percent": {"TRAIN": 12_811, "TEST": 50_000},
    "imagenet1k_10percent": {"TRAIN": 128_116, "TEST": 50_000},
    "places205": {"TRAIN": 2_448_873, "TEST": 20_500},
    "inaturalist18": {"TRAIN": 437_513, "TEST": 24_426},
    "voc07": {"TRAIN": 5_011, "TEST": 4_952},
    "yfcc1m": {"TRAIN": 1_000_000},
}
"""Data set → number of images per split."""

DETECTION_IMAGES = {
    "voc_2007_trainval": 5_011,
    "voc_2012_trainval": 11_540,
    "voc_2007_test": 4_952,
}
"""Detectron2's data set → number of images."""

STORAGE = ("folder", "filelist", "shards", "hf")
"""Data set names that describe how images are stored, not which images they are."""

PAPER = (
    *FREE,
    "SEED_VALUE",
    "TEST_EVERY_NUM_EPOCH",  # only the last test counts
    "LOSS.pirl_loss.bank.seed",
    # Images are compared by the number that a run has recorded.
    "DATA.TRAIN.DATASET_NAMES",
    "DATA.TEST.DATASET_NAMES",
    "LOSS.pirl_loss.num_train_samples",
    "global batch",  # compared with all of the run's batches
)
"""Keys that may differ when repeating the paper's pre-training."""

PAPER_BENCHMARK = (
    *PAPER,
    "MODEL.WEIGHTS_INIT.APPEND_PREFIX",  # the input and its layout
    "MODEL.WEIGHTS_INIT.PARAMS_FILE",
    "MODEL.WEIGHTS_INIT.REMOVE_PREFIX",
    "MODEL.WEIGHTS_INIT.STATE_DICT_KEY_NAME",
    "MODEL.TRUNK.PIRL_ENSEMBLE.PARAMS_FILES",
)
"""Keys that may differ when repeating the paper's benchmarks."""

PAPER_SVM = (
    *PAPER_BENCHMARK,
    "OPTIMIZER",  # features need no optimizer, loss or head
    "LOSS",
    "MODEL.HEAD",
    "SVM.dual",  # both LIBLINEAR solvers find the same SVMs
)
"""Keys that may differ when repeating the paper's SVMs."""

PAPER_DETECTION = ("SEED", "OUTPUT_DIR", "MODEL.DEVICE", "DATALOADER.NUM_WORKERS", "VIS_PERIOD")
"""Detectron2 options that may differ."""
