"""What the paper's pre-training and benchmarks share."""

from __future__ import annotations

IMAGENET, PLACES, INATURALIST, VOC07, YFCC = (
    "ImageNet", "Places205", "iNaturalist-2018", "VOC07", "YFCC-1M",
)  # fmt: skip
SPLIT = {  # of the images of a run
    "USE_DEBUGGING_SAMPLER": False,
    "STRATIFIED_SAMPLER.ENABLED": False,
    "POWER_LAW_SAMPLER.ENABLED": False,
    "RANDOM_SYNTHETIC_IMAGES": False,
    "RANDOM_SYNTHETIC_LABELS": 0,
    "DATA_LIMIT": -1,
    "ENABLE_QUEUE_DATASET": False,
    "BASE_DATASET": "generic_ssl",
    "TARGET_KEY_NAMES": ["label"],
    "COLLATE_FUNCTION_PARAMS": {},
    "DROP_LAST": False,
}
COMMON: dict[str, object] = {
    "TEST_ONLY": False,
    "HOOKS.EMA_MODEL": {"SAVE_EMA_MODEL": False, "ENABLE_EMA_METERS": False},
    "HOOKS.PIRL_INPUT.autocast": None,
    "HOOKS.PIRL_INPUT.mean": [0.485, 0.456, 0.406],
    "HOOKS.PIRL_INPUT.std": [0.229, 0.224, 0.225],
    "DATA.TRAIN": SPLIT,
    "MODEL": {
        "BASE_MODEL_NAME": "multi_input_output_model",
        "NON_TRAINABLE_PARAMS": [],
        "TEMP_FROZEN_PARAMS_ITER_MAP": [],
        "INPUT_TYPE": "rgb",
        "SINGLE_PASS_EVERY_CROP": False,
        "ACTIVATION_CHECKPOINTING.USE_ACTIVATION_CHECKPOINTING": False,
        "SHARDED_DDP_SETUP.USE_SDP": False,
        "GRAD_CLIP.USE_GRAD_CLIP": False,
        "AMP_PARAMS.USE_AMP": False,
        "FEATURE_EVAL_SETTINGS.FREEZE_TRUNK_AND_HEAD": False,
        "FEATURE_EVAL_SETTINGS.EVAL_TRUNK_AND_HEAD": False,
        "SYNC_BN_CONFIG.GROUP_SIZE": -1,
        "TRUNK.NAME": "resnet",
        "TRUNK.RESNETS": {
            "DEPTH": 50,
            "WIDTH_MULTIPLIER": 1,
            "NORM": "BatchNorm",
            "GROUPNORM_GROUPS": 32,
            "STANDARDIZE_CONVOLUTIONS": False,
            "GROUPS": 1,
            "ZERO_INIT_RESIDUAL": False,
            "WIDTH_PER_GROUP": 64,
            "LAYER4_STRIDE": 2,
        },
        "HEAD": {"BATCHNORM_EPS": 1e-5, "BATCHNORM_MOMENTUM": 0.1, "PARAMS_MULTIPLIER": 1.0},
        "WEIGHTS_INIT": {"REMOVE_PREFIX": "", "APPEND_PREFIX": ""},
    },
    "OPTIMIZER": {
        "name": "sgd",
        "use_larc": False,
        "use_zero": False,
        "momentum": 0.9,
        "regularize_bn": False,
        "non_regularized_parameters": [],
        "head_optimizer_params": {"use_different_lr": False, "use_different_wd": False},
        "construct_single_param_group_only": False,
        "param_group_constructor": "default",
        "param_schedulers.lr.update_interval": "epoch",
    },
    "TRAINER": {
        "TRAIN_STEP_NAME": "standard_train_step",
        "TASK_NAME": "self_supervision_task",
    },
}
CROSS_ENTROPY = {
    "LOSS.name": "cross_entropy_multiple_output_single_target",
    "LOSS.cross_entropy_multiple_output_single_target": {
        "weight": None,
        "reduction": "mean",
        "ignore_index": -1,
        "normalize_output": False,
        "temperature": 1.0,
    },
}
