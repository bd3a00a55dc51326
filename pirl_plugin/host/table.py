"""The one table of what this plugin puts into the host, and where.

Strings only: nothing is imported until the host's module is. A part's class or function is named
``package.module:attribute``; a step is a function that is given the host's module.
"""

# Host module whose import completes a registry -> (the registry, what we add to it: the name that
# users write in YAML, and the part). Losses and transforms live in Classy Vision's registries.
PARTS: dict[str, tuple[str, dict[str, str]]] = {
    "vissl.losses": (
        "classy_vision.losses:LOSS_REGISTRY",
        {"pirl_loss": "pirl_plugin.losses.pirl_loss:PIRLLoss"},
    ),
    "vissl.models.heads": (
        "vissl.models.heads:MODEL_HEADS_REGISTRY",
        {"pirl_head": "pirl_plugin.models.head:PIRLHead"},
    ),
    "vissl.models.trunks": (
        "vissl.models.trunks:MODEL_TRUNKS_REGISTRY",
        {
            "pirl_resnet": "pirl_plugin.models.resnet:PIRLResNet",
            "pirl_ensemble": "pirl_plugin.models.ensemble:PIRLEnsemble",
        },
    ),
    "vissl.data.collators": (
        "vissl.data.collators:COLLATOR_REGISTRY",
        {"pirl_collator": "pirl_plugin.data.collator:pirl_collator"},
    ),
    "vissl.data.ssl_transforms": (
        "classy_vision.dataset.transforms:TRANSFORM_REGISTRY",
        {
            "PIRLJigsaw": "pirl_plugin.data.transforms:PIRLJigsaw",
            "PIRLRotation": "pirl_plugin.data.transforms:PIRLRotation",
            "PIRLRotationJigsaw": "pirl_plugin.data.transforms:PIRLRotationJigsaw",
            "PIRLImage": "pirl_plugin.data.transforms:PIRLImage",
            "PredictJigsaw": "pirl_plugin.data.transforms:PredictJigsaw",
            "PredictRotation": "pirl_plugin.data.transforms:PredictRotation",
        },
    ),
    "vissl.data": (
        "vissl.data:DATASET_SOURCE_MAP",
        {
            "pirl_disk_folder": "pirl_plugin.data.source:PIRLDiskDataset",
            "pirl_disk_filelist": "pirl_plugin.data.source:PIRLDiskDataset",
            "pirl_disk_voc07": "pirl_plugin.data.source:PIRLDiskDataset",
            "pirl_disk_inaturalist18": "pirl_plugin.data.source:PIRLDiskDataset",
        },
    ),
}

_REGISTRATION = "pirl_plugin.host.registration"
_MENDS = "pirl_plugin.host.mends"
_EVALUATION = "pirl_plugin.host.evaluation_mends"

# Steps taken before the body of a host module runs.
BEFORE: dict[str, tuple[str, ...]] = {
    "vissl": ("pirl_plugin.host.quiet:silence_host_warnings",),
    "classy_vision": ("pirl_plugin.host.quiet:silence_host_warnings",),
    "classy_vision.dataset.classy_kinetics400": (f"{_MENDS}:alias_kinetics400",),
    "vissl.utils.misc": (f"{_MENDS}:lend_pkg_resources",),
    "vissl.utils.collect_env": (f"{_MENDS}:lend_pkg_resources",),
}

# Steps taken after it.
AFTER: dict[str, tuple[str, ...]] = {
    **{module: (f"{_REGISTRATION}:register_parts",) for module in PARTS},
    "vissl.data.ssl_transforms": (
        f"{_REGISTRATION}:register_parts",
        f"{_REGISTRATION}:give_whole_sample_to_our_transforms",
    ),
    "vissl.data": (
        f"{_REGISTRATION}:register_parts",
        f"{_REGISTRATION}:let_data_limit_apply_to_our_sources",
    ),
    "vissl.utils.misc": (f"{_MENDS}:take_back_pkg_resources",),
    "vissl.utils.collect_env": (f"{_MENDS}:take_back_pkg_resources",),
    "classy_vision.generic.distributed_util": (f"{_MENDS}:broadcast_without_copies",),
    "vissl.data.dataset_catalog": (
        f"{_MENDS}:data_paths_suffice",
        "pirl_plugin.host.catalog:register_our_datasets",
    ),
    "vissl.data.ssl_dataset": (f"{_MENDS}:labels_of_our_sources",),
    "vissl.trainer.trainer_main": (f"{_EVALUATION}:extract_features_on_cpu",),
    "vissl.utils.svm_utils.evaluate": (f"{_EVALUATION}:average_precision_on_current_numpy",),
    "vissl.utils.checkpoint": ("pirl_plugin.host.checkpoints:refuse_misfits",),
    "vissl.utils.svm_utils.svm_trainer": (f"{_EVALUATION}:svm_starts_anew",),
    "vissl.utils.svm_utils.svm_low_shot_trainer": (f"{_EVALUATION}:low_shot_means_are_numbers",),
    "vissl.utils.io": (f"{_EVALUATION}:missing_svm_result_is_a_failure",),
    "extra_scripts.create_low_shot_samples": (f"{_EVALUATION}:low_shot_samples_from_a_list",),
    "vissl.hooks": ("pirl_plugin.host.wiring:add_our_hooks",),
    "vissl.utils.hydra_config": ("pirl_plugin.host.search_path:add_our_configs",),
    "vissl.utils.distributed_launcher": ("pirl_plugin.host.launch:guard_launcher",),
}
